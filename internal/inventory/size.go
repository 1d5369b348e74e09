package inventory

// Size is what a machine has. What is not known stays unknown: a machine of an
// undescribed type is never one without accelerators. Where a resource consists of several
// machines that are alike (the hosts of a training job, the replicas of an endpoint), it is
// the size of one of them.
type Size struct {
	// GPUs is how many accelerators of any make it has. Zero is known to have none; part of
	// one counts as one.
	GPUs Fact[int]
	// GPU is their model, as the price book names it ("A100-80GB"), or else as the provider
	// does. Empty is unknown, or none.
	GPU string
	// GPUMemory is the memory of each in bytes.
	GPUMemory Fact[int64]
	// GPUPower is the TDP of each in watts.
	GPUPower Fact[int64]
	// MilliCPUs is virtual CPUs × 1000, as Kubernetes states them.
	MilliCPUs Fact[int64]
	MemoryMiB Fact[int64]
	// InstanceStorageGB is all its own disks together, which end with it, in units of 10^9
	// bytes as providers state them. Zero is known to have none.
	InstanceStorageGB Fact[int64]
	// InstanceDisks is how many disks that is.
	InstanceDisks Fact[int]
}

// Accelerated says whether it has accelerators or may have some.
func (s Size) Accelerated() bool { return s.GPUs.Or(1) > 0 }

// Manager is what starts and ends a resource in the place of people, and would bring it
// back. The zero Manager is none.
type Manager struct {
	// Kind is one of the kinds below.
	Kind string
	// Name is the manager's own name; empty is not known.
	Name string
}

// Kinds of managers.
const (
	ManagerAutoScaling = "autoscaling-group"
	ManagerFleet       = "fleet"
	ManagerSpotFleet   = "spot-fleet"
	ManagerEMR         = "emr-cluster"
	ManagerEKS         = "eks-cluster"
	ManagerKubernetes  = "kubernetes-cluster"
	ManagerKarpenter   = "karpenter"
	ManagerECS         = "ecs-cluster"
	ManagerBatch       = "batch"
	// ManagerBackup is AWS Backup, which alone deletes its recovery points.
	ManagerBackup = "aws-backup"
	// ManagerService is a service of the provider, by the name that it gives.
	ManagerService = "service"
)

// String returns "autoscaling-group workers", or the kind alone; empty for none.
func (m Manager) String() string {
	if m.Kind == "" || m.Name == "" {
		return m.Kind
	}
	return m.Kind + " " + m.Name
}
