"""Execute the notebooks beside this file and store their outputs: `make examples`, after a change to what they show."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress"  # other libraries' bars, where ipywidgets is not installed
    for file in sorted(Path(__file__).parent.glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(file.parent)}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of day, which differ at every execution
            if cell.cell_type == "code":
                cell.outputs = join_streams(cell.outputs)
        nbformat.write(notebook, file)
        print(file.name)


def join_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with what was printed in one piece, and of a progress bar only its last state."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = "\n".join(line.rsplit("\r", 1)[-1] for line in output.text.split("\n"))
    return joined


if __name__ == "__main__":
    main()
