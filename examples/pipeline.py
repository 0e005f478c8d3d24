"""Clothes from pictures: a Pipeline with a grid search over a Keras network, scored and drawn.

    python examples/pipeline.py                                   # handwritten digits, 8 x 8
    python examples/pipeline.py --images /usr/share/datasets/fashion-mnist

The second one reads Fashion-MNIST: 60,000 pictures of 28 x 28, for instance from Debian's package
dataset-fashion-mnist. Writes history.png, confusion.png and the fitted pipeline to --output.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import SQLTransformer
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

import sparktrain as st

CLOTHES = ["T-shirt", "trousers", "pullover", "dress", "coat"]
CLOTHES += ["sandal", "shirt", "sneaker", "bag", "ankle boot"]

# %% The network: Keras, as it would be anywhere.


def build_model(size=28, filters=16):
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((size, size, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(filters, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * filters, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


# %% The pictures, as bytes in a DataFrame.


def read_fashion(folder, part):
    with gzip.open(Path(folder, f"{part}-images-idx3-ubyte.gz")) as stream:
        images = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 28 * 28)
    with gzip.open(Path(folder, f"{part}-labels-idx1-ubyte.gz")) as stream:
        labels = np.frombuffer(stream.read(), np.uint8, offset=8)
    return images, [CLOTHES[label] for label in labels]


def read_digits():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.data * 255 / 16).astype("uint8")
    return images, [f"digit {label}" for label in digits.target]


def make_frame(spark, images, labels):
    rows = [(image.tobytes(), label) for image, label in zip(images, labels, strict=True)]
    return spark.createDataFrame(rows, "pixels binary, thing string").repartition(8).cache()


# %% Train: a stage that prepares rows, and a search for the best network.


def train(df, size, epochs, folds):
    network = st.KerasClassifier(
        model=build_model,
        featureCols=["pixels"],
        labelCol="thing",
        shapes={"pixels": (size, size, 1)},
        validation=0.1,
        loss="sparse_categorical_crossentropy",
        optimizer="adam",
        metrics=["accuracy"],
        batchSize=128,
        epochs=epochs,
        numWorkers=2,
        seed=7,
    )
    grid = (
        ParamGridBuilder()
        .addGrid(network.modelArgs, [{"size": size, "filters": filters} for filters in (4, 16)])
        .addGrid(network.learningRate, [0.001, 0.003])
        .build()
    )
    accuracy = MulticlassClassificationEvaluator(labelCol="label_index", metricName="accuracy")
    search = CrossValidator(
        estimator=network,
        estimatorParamMaps=grid,
        evaluator=accuracy,
        numFolds=folds,
        parallelism=2,
        seed=7,
    )
    known = SQLTransformer(statement="SELECT * FROM __THIS__ WHERE thing IS NOT NULL")
    fitted = Pipeline(stages=[known, search]).fit(df)
    for params, value in zip(grid, fitted.stages[-1].avgMetrics, strict=True):
        told = ", ".join(f"{param.name} {one}" for param, one in params.items())
        print(f"{value:.3f} with {told}")
    return fitted


# %% Draw: how it learnt, and what it takes for what.


def draw_confusion(scored, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    counts = scored.groupBy("thing", "predicted_label").count().collect()
    names = sorted({row["thing"] for row in counts} | {row["predicted_label"] for row in counts})
    table = np.zeros((len(names), len(names)), int)
    for row in counts:
        table[names.index(row["thing"]), names.index(row["predicted_label"])] = row["count"]
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("the network says")
    axes.set_ylabel("it is")
    for row in range(len(names)):
        for column in range(len(names)):
            if table[row, column]:
                dark = share[row, column] > 0.5
                text = str(table[row, column])
                axes.text(column, row, text, ha="center", va="center", color="w" if dark else "k")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", help="the folder of Fashion-MNIST; default: digits")
    parser.add_argument("--limit", type=int, default=12_000, help="pictures to train on")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--output", default="pipeline")
    options = parser.parse_args()
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    spark = st.session()
    if options.images:
        images, things = read_fashion(options.images, "train")
        tests, test_things = read_fashion(options.images, "t10k")
    else:
        images, things = read_digits()
        tests, test_things = images[1500:], things[1500:]
        images, things = images[:1500], things[:1500]
    size = int(images.shape[1] ** 0.5)
    df = make_frame(spark, images[: options.limit], things[: options.limit])
    test = make_frame(spark, tests[: options.limit], test_things[: options.limit])

    fitted = train(df, size, options.epochs, options.folds)
    best = fitted.stages[-1].bestModel
    print(best.summary())
    print(best.history)
    best.plot(str(output / "history.png"))

    fitted.write().overwrite().save(str(output / "model"))
    scored = PipelineModel.load(str(output / "model")).transform(test).cache()
    scored.select("thing", "predicted_label", "prediction").show(5)
    accuracy = MulticlassClassificationEvaluator(labelCol="label_index", metricName="accuracy")
    print(f"test accuracy {accuracy.evaluate(scored):.3f}")
    draw_confusion(scored, output / "confusion.png")
    print(f"written: {output}/history.png, {output}/confusion.png, {output}/model")
    spark.stop()


if __name__ == "__main__":
    main()
