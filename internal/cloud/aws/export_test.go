package aws

// Operations are the read calls of this package.
var Operations = operations

// MetricsProtocol is the option of CloudWatch's clients.
var MetricsProtocol = metricsProtocol
