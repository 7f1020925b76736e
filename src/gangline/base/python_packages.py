"""The distribution that pip installs for an import. Pure."""

_DISTRIBUTIONS = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "GitPython",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "jose": "python-jose",
    "magic": "python-magic",
    "paddle": "paddlepaddle",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "torch_geometric": "torch-geometric",
    "umap": "umap-learn",
    "usb": "pyusb",
    "wx": "wxPython",
    "yaml": "PyYAML",
}
"""By import: the distribution, where its name is another one. Names with dots come before their first part."""


def distribution_of(module: str) -> str:
    """What to install for `import module`: the distribution with another name, else that of its first part."""
    parts = module.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((_DISTRIBUTIONS[prefix] for prefix in prefixes if prefix in _DISTRIBUTIONS), parts[0])
