package inventory

// Size is the capacity of a machine. Unread properties stay unknown: a machine of an undescribed
// type never counts as one without accelerators. For a resource of several equal machines (the
// hosts of a training job, the replicas of an endpoint) it is the size of one of them.
type Size struct {
	// GPUs is the number of accelerators of any make. Zero is known to have none; a part of one
	// counts as one.
	GPUs Fact[int]
	// GPU is their model, as the price book names it ("A100-80GB"), or else as the provider does.
	// Empty is unknown or none.
	GPU string
	// GPUMemory is the memory of each in bytes.
	GPUMemory Fact[int64]
	// GPUPower is the TDP of each in watts.
	GPUPower Fact[int64]
	// MilliCPUs is virtual CPUs × 1000, as Kubernetes states them.
	MilliCPUs Fact[int64]
	MemoryMiB Fact[int64]
	// InstanceStorageGB is the total size of its instance store disks, which are lost with the
	// machine, in 10^9 bytes as providers state them. Zero is known to have none.
	InstanceStorageGB Fact[int64]
	// InstanceDisks is the number of those disks.
	InstanceDisks Fact[int]
}

// Accelerated reports whether the machine has accelerators, or may have some.
func (s Size) Accelerated() bool { return s.GPUs.Or(1) > 0 }

// Manager is the service that starts and ends a resource, and would recreate it. The zero Manager
// is none.
type Manager struct {
	// Kind is one of the kinds below.
	Kind string
	// Name is the manager's name; empty is unknown.
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
	// ManagerBackup is AWS Backup; only it can delete its recovery points.
	ManagerBackup = "aws-backup"
	// ManagerService is a service of the provider, under the provider's name for it.
	ManagerService = "service"
)

// String returns "autoscaling-group workers", or the kind alone; empty for none.
func (m Manager) String() string {
	if m.Kind == "" || m.Name == "" {
		return m.Kind
	}
	return m.Kind + " " + m.Name
}
