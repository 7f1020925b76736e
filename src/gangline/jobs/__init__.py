"""The reusable job library: what is true of every kind of training job."""
