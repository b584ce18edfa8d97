"""Text of language models, for benches of several packages: FlexNN and llama.cpp in processes of their own."""
