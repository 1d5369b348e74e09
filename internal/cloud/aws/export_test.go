package aws

// Operations are the calls by which this package may read.
var Operations = operations
