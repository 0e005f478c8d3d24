"""How processes talk: message values, their framing, and the control link. Never pickles."""
