package sandbox

// Work is what a machine does, as the CloudWatch agent reports it each minute.
type Work struct {
	GPUs int
	// Util is the GPUs' utilisation in percent, Memory what each holds of Total MiB.
	Util, Memory, Total float64
	// CPU is percent, Bytes what crosses the network in a minute.
	CPU, Bytes float64
}
