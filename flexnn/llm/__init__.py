"""Language models: GGUF files as models, tokens, and generation of text. Imported only when it is asked for."""
