"""The modules of tensorspark that programs import."""
