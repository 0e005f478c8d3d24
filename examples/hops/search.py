"""A search for the best network for handwritten digits: a grid, or differential evolution.

Written for hops.
"""

import argparse

from hops import experiment
from hops.experiment import Direction


def train_fn(learning_rate, units):
    import keras
    from sklearn.datasets import load_digits

    from hops import tensorboard

    images, labels = load_digits(return_X_y=True)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(
        images[:1200],
        labels[:1200],
        validation_data=(images[1200:], labels[1200:]),
        batch_size=32,
        epochs=2,
        verbose=0,
        callbacks=[keras.callbacks.TensorBoard(tensorboard.logdir())],
    )
    accuracy = history.history["val_accuracy"][-1]
    print("accuracy", accuracy)
    model.save("digits.keras")
    return {"accuracy": accuracy, "loss": history.history["val_loss"][-1], "model": "digits.keras"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--evolve", action="store_true")
    args = parser.parse_args()
    if args.evolve:
        best_dir, best_params, outputs = experiment.differential_evolution(
            train_fn,
            {"learning_rate": [0.0005, 0.02], "units": [8, 64]},
            direction=Direction.MIN,
            generations=2,
            population=4,
            name="digits",
            optimization_key="loss",
        )
    else:
        best_dir, best_params, outputs = experiment.grid_search(
            train_fn,
            {"learning_rate": [0.0001, 0.01], "units": [32]},
            direction=Direction.MAX,
            name="digits",
            optimization_key="accuracy",
        )
    print("best", best_params, "in", best_dir)
    print("best accuracy", outputs["accuracy"], "of", outputs["model"])
