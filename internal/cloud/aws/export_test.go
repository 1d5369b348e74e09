package aws

// Operations are the calls by which this package may read.
var Operations = operations

// MetricsProtocol is the option of CloudWatch's clients.
var MetricsProtocol = metricsProtocol
