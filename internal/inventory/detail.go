package inventory

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Detail holds the properties of one kind of resource.
type Detail interface{ detail() }

// Market is the purchase option of a machine's capacity. The zero value is unknown and has no
// price.
type Market string

// The markets.
const (
	MarketUnknown Market = ""
	OnDemand      Market = "on-demand"
	Spot          Market = "spot"
	CapacityBlock Market = "capacity-block"
	DedicatedHost Market = "dedicated-host" // charged by the host, not by the machine
	LinuxPlatform        = "linux"
	SharedTenancy        = "shared"
)

// Instance is a virtual machine.
type Instance struct {
	Market Market
	// Platform is "linux" for Linux without a paid license; others ("windows", "rhel", …) have
	// other prices. Empty is unknown.
	Platform string
	// PlatformAssumed is set if the provider did not report the platform.
	PlatformAssumed bool
	// Tenancy is "shared" or "dedicated". Empty is unknown.
	Tenancy string
	ImageID string
	Disks   []Disk
	// CapacityReservationID is the reservation it runs in, if any.
	CapacityReservationID string
	// TerminationProtected is the provider's termination protection.
	TerminationProtected Fact[bool]
	// SpotOnce is set for a machine of a one-time spot request, which cannot be stopped, only
	// terminated.
	SpotOnce Fact[bool]
	// PublicAddresses is the number of public IPv4 addresses that the provider assigns while the
	// machine runs. Addresses held by the account are separate resources.
	PublicAddresses int64
}

// DeletedDisks returns the volumes that are deleted with the machine, sorted.
func (i *Instance) DeletedDisks() []string {
	var ids []string
	for _, d := range i.Disks {
		if d.DeleteOnTermination {
			ids = append(ids, d.VolumeID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Disk is a volume attached to a machine.
type Disk struct {
	VolumeID            string
	DeleteOnTermination bool
	// Device is the device name of the attachment ("/dev/xvda"); empty is unknown.
	Device string
	// Root is set for the boot disk.
	Root bool
	// SizeGiB is unknown if the volume was not read.
	SizeGiB Fact[int64]
}

// Volume is a block device. Type is gp2, gp3, io1, io2, st1, sc1 or standard.
type Volume struct {
	SizeGiB         int64
	IOPS            int64 // provisioned; 0 if the type has none
	ThroughputMiBps int64 // provisioned; 0 if the type has none
	AttachedTo      []string
	// Claim is the Kubernetes claim whose data the volume holds, as "namespace/name", or the name
	// of its persistent volume; empty if the tags name none.
	Claim string
}

// Snapshot is a copy of a volume. Snapshots of one volume are incremental: only the first of a
// chain holds all its blocks, and the provider does not publish the size of the others.
type Snapshot struct {
	VolumeID string
	// VolumeSizeGiB is the size of the volume, an upper bound of the stored size.
	VolumeSizeGiB int64
	// FullBytes is the full size of the snapshot's data, if published.
	FullBytes Fact[int64]
	// Archived is true in the archive tier.
	Archived bool
	// Images are the machine images that need the snapshot, including disabled ones.
	Images []string
	// ImagesKnown is false if the images could not be read; then no snapshot counts as unused.
	ImagesKnown bool
	// Launchers are the resources that start machines with a disk made from the snapshot, as
	// [Image.Launchers].
	Launchers Fact[[]string]
	// Locked is set if a snapshot lock prevents deletion.
	Locked Fact[bool]
}

// copiedVolume is the provider's placeholder for the volume of a copied snapshot.
const copiedVolume = "vol-ffffffff"

// InChain reports whether the snapshot shares blocks with others of its volume.
func (s *Snapshot) InChain() bool {
	return s.VolumeID != "" && s.VolumeID != copiedVolume && !s.Archived
}

// Image is a machine image, stored in snapshots.
type Image struct {
	SnapshotIDs  []string
	LastLaunched Fact[time.Time]
	Public       bool
	// Protected is set if EC2 refuses to deregister the image.
	Protected bool
	// Launchers name the resources that start machines from the image: "launch template web version
	// 3", "launch configuration web", "fleet fleet-1". Unknown if not all were read.
	Launchers Fact[[]string]
}

// Address is a public IPv4 address allocated to the account.
type Address struct {
	// AssociationID is empty if the address is not associated.
	AssociationID string
	// InstanceID is the associated machine, if any.
	InstanceID string
	// Pool is the address's IPAM pool, whose addresses may be the account's own or the provider's;
	// empty for an address from no pool.
	Pool string
}

// NATGateway is a managed gateway. Type is "public" or "private".
type NATGateway struct {
	// Routes is the number of route tables that send traffic to the gateway.
	Routes Fact[int]
}

// LoadBalancer is a load balancer. Type is application, network, gateway or
// classic.
type LoadBalancer struct {
	// Dimension is the name of the load balancer in the provider's metrics.
	Dimension string
	// TargetGroups are the names of its target groups in the provider's metrics.
	TargetGroups            []string
	Targets, HealthyTargets Fact[int]
}

// LifecycleRule is the part of a bucket's lifecycle rule that findings need.
type LifecycleRule struct {
	ID      string
	Enabled bool
	// Prefix is empty for the whole bucket.
	Prefix string
	// Filtered is true if tags or sizes narrow the rule further.
	Filtered bool
	// TransitionDays maps a storage class to the age at which objects move there.
	TransitionDays map[string]int
	// ExpirationDays, NoncurrentExpirationDays and AbortMultipartDays are 0 if the rule has none.
	ExpirationDays, NoncurrentExpirationDays, AbortMultipartDays int
	NoncurrentTransition                                         bool
}

// Stored is an amount of stored data.
type Stored struct {
	Bytes, Objects int64
}

// Bucket is an object store bucket.
type Bucket struct {
	Versioned Fact[bool]
	Lifecycle Fact[[]LifecycleRule]
	// LifecycleDocument is the lifecycle as the provider returned it, byte for byte; empty without
	// one. MinimumSize is its setting for moving small objects.
	LifecycleDocument Fact[string]
	MinimumSize       string
	// Sizes are the stored bytes by storage class (STANDARD, STANDARD_IA, GLACIER, DEEP_ARCHIVE,
	// …).
	Sizes   Fact[map[string]int64]
	Objects Fact[int64]
	// Uploads are incomplete multipart uploads older than 7 days.
	Uploads Fact[Uploads]
	// Noncurrent is the size of replaced or deleted versions. Locked is the part that the bucket's
	// default retention still keeps, the last of it until LockedUntil. DeleteMarkers counts objects
	// hidden by a delete marker.
	Noncurrent    Fact[Listing]
	Locked        Stored
	LockedUntil   time.Time
	DeleteMarkers int64
	// MFADelete is set if deleting requires a second factor; S3 accepts no lifecycle then.
	MFADelete Fact[bool]
	// ObjectLock is the protection of versions from deletion.
	ObjectLock Fact[ObjectLock]
	// ReplicatesTo are the buckets that its objects are replicated to, ReplicatedFrom the listed
	// buckets that replicate into it. Both are unknown if replication was not read.
	ReplicatesTo, ReplicatedFrom Fact[[]string]
	// Prefixes are the results of a bounded listing by top-level prefix.
	Prefixes Fact[[]Prefix]
	// ListedBy names the source of the objects' sizes, for people: "listing of 5 calls", "S3
	// Inventory of 2026-11-20".
	ListedBy string
	// Ages is the result of an analysis of the whole bucket, as one prefix without a name;
	// AgesSource names the analysis: "Storage Class Analysis of 2026-11-20".
	Ages       Fact[Prefix]
	AgesSource string
}

// ObjectLock is a bucket's default protection of versions from deletion. Single objects may have a
// longer retention or a legal hold without end, which the bucket does not show.
type ObjectLock struct {
	Enabled bool
	// Mode is GOVERNANCE or COMPLIANCE, and RetentionDays the default retention; 0 is no default.
	Mode          string
	RetentionDays int
}

// Uploads are incomplete multipart uploads.
type Uploads struct {
	Count  int
	Bytes  Fact[int64]
	Oldest time.Time
	// Complete is false if the listing stopped at its bound.
	Complete bool
}

// Listing is the sum of a bounded listing.
type Listing struct {
	Stored
	// Complete is false if the listing stopped at its bound; then the sums are lower bounds.
	Complete bool
}

// Prefix is the result of a bounded listing under one prefix.
type Prefix struct {
	Name string
	Listing
	// Standard is the part in the standard class. If it is zero and Class is the standard class,
	// the whole listing is in it.
	Standard Stored
	// CoveredByRules is the part of Standard that an enabled lifecycle rule moves or expires;
	// PossiblyCovered the part that only rules with tag or date filters cover, which a listing
	// cannot decide.
	CoveredByRules, PossiblyCovered Stored
	// Tiered is the size in Intelligent-Tiering, Instant that in Glacier Instant Retrieval. Both
	// return objects immediately, and a rule for the archive would move them as well.
	Tiered, Instant Stored
	// Small counts objects of the standard class under 128 KiB, which gain nothing in infrequent
	// access and are not moved.
	Small Stored
	// OlderThan maps an age in days (30, 90, 180) to the older part of the standard class that no
	// rule covers, without small objects.
	OlderThan map[int]Stored
	// ReadBytes maps the same ages to the bytes of that part read in 30 days; nil if not measured.
	ReadBytes map[int]int64
	// LastRead is the newest day on which objects over 30 days old were read, and ReadsSince the
	// first day of which that is known; zero: no read is known, and reads were not measured.
	LastRead, ReadsSince time.Time
	// LoggedRead is the newest read of any of its objects in the sampled access log of the bucket;
	// zero: none is known.
	LoggedRead time.Time
	// Newest and Oldest are modification times; zero without objects.
	Newest, Oldest time.Time
	// Class is the most frequent storage class.
	Class string
}

// Repository is a container image repository.
type Repository struct {
	// Images and Bytes count all images; Untagged… those without a tag; Unpulled… tagged ones of at
	// least 90 days without a pull for 90 days.
	Images, UntaggedImages, UnpulledImages int
	Bytes, UntaggedBytes, UnpulledBytes    Fact[int64]
	LifecyclePolicy                        Fact[bool]
	// LifecycleDocument is the policy as the provider returned it; empty without one.
	LifecycleDocument Fact[string]
	// UntaggedDigests are the digests of images without a tag, sorted.
	UntaggedDigests []string
}

// LogGroup is a group of log streams.
type LogGroup struct {
	StoredBytes Fact[int64]
	// RetentionDays is 0 if logs are kept without end.
	RetentionDays Fact[int]
}

// Notebook is a managed notebook machine. Type is its machine type without the service's prefix
// (ml.).
type Notebook struct {
	VolumeGiB    int64
	LastModified time.Time
	// LastActivity is the kernel's or app's own record of use.
	LastActivity Fact[time.Time]
	// IsApp is true for a studio application.
	IsApp bool
}

// Endpoint is a managed inference endpoint.
type Endpoint struct {
	Variants     []Variant
	Async        bool
	LastModified time.Time // zero is unknown
	// Components is set if inference components serve, whose requests are not counted as the
	// endpoint's.
	Components bool
}

// Variant is a part of an endpoint on machines of one type (without the service's prefix).
type Variant struct {
	Name       string
	Type       string
	Count      int64
	Serverless bool
}

// TrainingJob is a current or finished managed training job.
type TrainingJob struct {
	Count      int64
	VolumeGiB  int64
	Spot       bool
	StartedAt  time.Time
	MaxRuntime time.Duration // 0 unknown
	InputURIs  []string
}

// HyperPod is a cluster of machines for training that the provider keeps running.
type HyperPod struct {
	// Groups are its machines; known if the cluster itself could be read.
	Groups Fact[[]HyperPodGroup]
}

// HyperPodGroup is the machines of one type in an instance group.
type HyperPodGroup struct {
	NodeGroup
	// Spot machines and those of a training plan are not charged hourly on demand.
	Spot, TrainingPlan bool
	// VolumeGiB is the size of the additional volume of each machine.
	VolumeGiB int64
}

// AutoScalingGroup is a group of machines under one controller.
type AutoScalingGroup struct {
	Min, Max, Desired int64
	Instances         []string
	// ScalingPolicies is the number of policies that change the group's size by demand or schedule.
	ScalingPolicies Fact[int]
}

// CapacityReservation is reserved machine capacity that is charged whether used or not. Type is the
// machine type.
type CapacityReservation struct {
	Total, Available int64
	// Block is true for a capacity block, which is paid upfront.
	Block    bool
	EndsAt   time.Time
	Platform string
	// Tenancy is "shared" or "dedicated".
	Tenancy string
}

// CommitmentType is the kind of a commitment.
type CommitmentType string

// The commitment types.
const (
	ReservedInstances   CommitmentType = "reserved-instances"
	ComputeSavingsPlan  CommitmentType = "compute-savings-plan"
	InstanceSavingsPlan CommitmentType = "ec2-instance-savings-plan"
	MachineLearningPlan CommitmentType = "sagemaker-savings-plan"
)

// Commitment is a promise to pay for a term. For reserved instances Type is the machine type, and
// Region or Zone the scope.
type Commitment struct {
	CommitmentType CommitmentType
	// Count is the number of reserved machines.
	Count int64
	// Platform of reserved machines, as in Instance.
	Platform string
	// Zonal reservations cover only their zone.
	Zonal bool
	// Hourly is the hourly cost of the commitment, with its upfront part spread over the term.
	Hourly Fact[money.Amount]
	// Family of an instance savings plan: "p4d".
	Family           string
	StartsAt, EndsAt time.Time
}

// FileSystem is a managed file system. Type is efs, fsx-lustre, fsx-windows,
// fsx-ontap or fsx-openzfs.
type FileSystem struct {
	// Sizes are the bytes by storage class for efs (STANDARD, IA, ARCHIVE).
	Sizes Fact[map[string]int64]
	// CapacityGiB is the provisioned capacity for fsx.
	CapacityGiB int64
	// StorageType is SSD or HDD for fsx.
	StorageType string
	// ThroughputMBpsPerTiB is the throughput per TiB for lustre.
	ThroughputMBpsPerTiB int64
	// Deployment is SCRATCH_2, PERSISTENT_2, …, SINGLE_AZ_1, MULTI_AZ_1, …
	Deployment string
}

// Cluster is the managed control plane of a Kubernetes cluster.
type Cluster struct {
	// Version is the minor version of Kubernetes: "1.29".
	Version string
	// ExtendedSince is the start of the provider's extended support of the version, which costs
	// more; zero if it has not started or is unknown.
	ExtendedSince time.Time
}

// Table is a table of a managed key-value store. Indexes are the names of its secondary indexes,
// whose units are included in ReadUnits and WriteUnits, the provisioned capacity.
type Table struct {
	OnDemand              bool
	ReadUnits, WriteUnits int64
	Indexes               []string
}

// VPCEndpoint is an interface endpoint of a private network, charged per zone.
type VPCEndpoint struct {
	Service, VPC string
	Zones        int64
}

// Database is a managed database, cache, warehouse or search cluster. Type is its class.
type Database struct {
	Engine      string // postgres, opensearch, …
	Count       int64
	MultiAZ     bool
	StorageGiB  int64
	StorageType string
	// IOPS and ThroughputMiBps are provisioned; 0 if the storage type has none.
	IOPS, ThroughputMiBps int64
	// License is the provider's license model: "license-included", "bring-your-own-license"; empty
	// if the engine has no paid license.
	License string
	// Cluster is the database cluster of a member; empty otherwise.
	Cluster string
	// Nodes are the groups of machines of other types.
	Nodes []NodeGroup
}

// NodeGroup is a group of machines of one type within a managed service.
type NodeGroup struct {
	Name string
	// Type is the machine type without the service's prefix.
	Type  string
	Count int64
}

// Secret is a stored secret.
type Secret struct {
	LastAccessed Fact[time.Time]
}

func (*Address) detail()             {}
func (*AutoScalingGroup) detail()    {}
func (*Bucket) detail()              {}
func (*CapacityReservation) detail() {}
func (*Cluster) detail()             {}
func (*Commitment) detail()          {}
func (*Database) detail()            {}
func (*Endpoint) detail()            {}
func (*FileSystem) detail()          {}
func (*HyperPod) detail()            {}
func (*Image) detail()               {}
func (*Instance) detail()            {}
func (*LoadBalancer) detail()        {}
func (*LogGroup) detail()            {}
func (*NATGateway) detail()          {}
func (*Notebook) detail()            {}
func (*Repository) detail()          {}
func (*Secret) detail()              {}
func (*Snapshot) detail()            {}
func (*Table) detail()               {}
func (*TrainingJob) detail()         {}
func (*VPCEndpoint) detail()         {}
func (*Volume) detail()              {}
