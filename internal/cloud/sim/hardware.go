package sim

// hardware is the GPU hardware of a machine that behaviors depend on.
type hardware struct {
	gpus int
	// memory is one GPU's memory in bytes, as nvidia-smi reports it.
	memory float64
	// idleWatts and watts are one GPU's power at rest and its limit.
	idleWatts, watts float64
	// nvidia is false for accelerators that NVIDIA's tools do not see.
	nvidia bool
}

const mib = 1 << 20

// The accelerators of the account's machines: memory as nvidia-smi reports it and
// power limits of NVIDIA's data sheets.
var (
	t4      = hardware{memory: 15360 * mib, idleWatts: 9, watts: 70, nvidia: true}
	v100    = hardware{memory: 16384 * mib, idleWatts: 26, watts: 300, nvidia: true}
	a10g    = hardware{memory: 23028 * mib, idleWatts: 16, watts: 300, nvidia: true}
	l4      = hardware{memory: 23034 * mib, idleWatts: 13, watts: 72, nvidia: true}
	l40s    = hardware{memory: 46068 * mib, idleWatts: 33, watts: 350, nvidia: true}
	a100    = hardware{memory: 40960 * mib, idleWatts: 52, watts: 400, nvidia: true}
	a100x80 = hardware{memory: 81920 * mib, idleWatts: 62, watts: 400, nvidia: true}
	h100    = hardware{memory: 81559 * mib, idleWatts: 70, watts: 700, nvidia: true}
	rtx6000 = hardware{memory: 97887 * mib, idleWatts: 35, watts: 600, nvidia: true}
	neuron  = hardware{}
)

func (h hardware) times(n int) hardware {
	h.gpus = n
	return h
}

// machineTypes are the accelerated machine types of the account and their
// accelerators (AWS, EC2 accelerated computing instances). Types that are not
// listed have none.
var machineTypes = map[string]hardware{
	"g4dn.xlarge": t4.times(1), "g4dn.2xlarge": t4.times(1), "g4dn.4xlarge": t4.times(1), "g4dn.12xlarge": t4.times(4),
	"g5.xlarge": a10g.times(1), "g5.2xlarge": a10g.times(1), "g5.4xlarge": a10g.times(1), "g5.12xlarge": a10g.times(4),
	"g6.xlarge": l4.times(1), "g6.2xlarge": l4.times(1), "g6.4xlarge": l4.times(1), "g6.12xlarge": l4.times(4),
	"g6e.xlarge": l40s.times(1), "g6e.2xlarge": l40s.times(1), "g6e.4xlarge": l40s.times(1),
	"p3.2xlarge": v100.times(1), "p3.8xlarge": v100.times(4),
	"p4d.24xlarge": a100.times(8), "p4de.24xlarge": a100x80.times(8),
	"p5.4xlarge": h100.times(1), "p5.48xlarge": h100.times(8),
	"g7e.2xlarge":  rtx6000.times(1),
	"trn1.2xlarge": neuron.times(1), "inf2.xlarge": neuron.times(1),
}

// hardwareOf returns the GPUs of a machine type; the zero hardware for a type without accelerators.
func hardwareOf(machineType string) hardware { return machineTypes[machineType] }
