import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # loops.py, whatever the folder that pytest starts in
