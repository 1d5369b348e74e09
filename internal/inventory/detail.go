package inventory

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Detail is what only one kind of resource has.
type Detail interface{ detail() }

// Market is how a machine's capacity was bought. The zero value is unknown and
// has no price.
type Market string

// The markets.
const (
	MarketUnknown Market = ""
	OnDemand      Market = "on-demand"
	Spot          Market = "spot"
	CapacityBlock Market = "capacity-block"
	DedicatedHost Market = "dedicated-host" // paid by the host, not by the machine
	LinuxPlatform        = "linux"
	SharedTenancy        = "shared"
)

// Instance is a virtual machine.
type Instance struct {
	Market Market
	// Platform is "linux" for Linux without a paid license; anything else
	// ("windows", "rhel", …) is priced apart. Empty is unknown.
	Platform string
	// PlatformAssumed says that the provider did not tell the platform.
	PlatformAssumed bool
	// Tenancy is "shared" or "dedicated". Empty is unknown.
	Tenancy string
	ImageID string
	Disks   []Disk
	// CapacityReservationID is the reservation it runs in, if any.
	CapacityReservationID string
	// TerminationProtected is the provider's own protection.
	TerminationProtected Fact[bool]
	// SpotOnce says that the machine is of a one-time spot request, so that it cannot be
	// stopped, only terminated.
	SpotOnce Fact[bool]
	// PublicAddresses is how many public IPv4 addresses the provider lends it while it runs.
	// Addresses that the account holds are resources of their own.
	PublicAddresses int64
}

// DeletedDisks returns the volumes that end with the machine, sorted.
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
	// Device is the name under which it is attached ("/dev/xvda"); empty is unknown.
	Device string
	// Root says that the machine boots from it.
	Root bool
	// SizeGiB is unknown where the volume was not read.
	SizeGiB Fact[int64]
}

// Volume is a block device. Type is gp2, gp3, io1, io2, st1, sc1, standard.
type Volume struct {
	SizeGiB         int64
	IOPS            int64 // provisioned; 0 where the type has none
	ThroughputMiBps int64 // provisioned; 0 where the type has none
	AttachedTo      []string
	// Claim is the Kubernetes claim that the volume holds the data of, as "namespace/name",
	// or the name of its persistent volume; empty where its tags name none.
	Claim string
}

// Snapshot is a copy of a volume. Snapshots of one volume are incremental: only
// the first of a chain holds all its blocks, and the provider does not publish
// what the others hold.
type Snapshot struct {
	VolumeID string
	// VolumeSizeGiB is the size of the volume, an upper bound of what is stored.
	VolumeSizeGiB int64
	// FullBytes is the full size of the snapshot's data, where published.
	FullBytes Fact[int64]
	// Archived is true in the archive tier.
	Archived bool
	// Images are the machine images, disabled ones included, that need it.
	Images []string
	// ImagesKnown is false when the images could not be read; then no snapshot is
	// known to be unused.
	ImagesKnown bool
	// Launchers are the resources that start machines with a disk made from it, as [Image.Launchers].
	Launchers Fact[[]string]
	// Locked says whether a snapshot lock keeps it from being deleted.
	Locked Fact[bool]
}

// copiedVolume is the placeholder that the provider gives as the volume of a
// copied snapshot.
const copiedVolume = "vol-ffffffff"

// InChain says whether the snapshot shares blocks with others of its volume.
func (s *Snapshot) InChain() bool {
	return s.VolumeID != "" && s.VolumeID != copiedVolume && !s.Archived
}

// Image is a machine image. Its storage is its snapshots'.
type Image struct {
	SnapshotIDs  []string
	LastLaunched Fact[time.Time]
	Public       bool
	// Protected says that EC2 does not deregister it.
	Protected bool
	// Launchers are the resources that start machines from it, for people: "launch template web version
	// 3", "launch configuration web", "fleet fleet-1". Unknown where not all of them were read.
	Launchers Fact[[]string]
}

// Address is a public IPv4 address that is held.
type Address struct {
	// AssociationID is empty when it is not associated.
	AssociationID string
	// InstanceID is the machine it is associated with, if it is one.
	InstanceID string
	// Pool is the IPAM pool that it is from, whose addresses may be the account's own or the
	// provider's; empty for an address that the provider lends one by one.
	Pool string
}

// NATGateway is a managed gateway. Type is "public" or "private".
type NATGateway struct {
	// Routes is how many route tables send traffic to it.
	Routes Fact[int]
}

// LoadBalancer is a load balancer. Type is application, network, gateway or
// classic.
type LoadBalancer struct {
	// Dimension is its name in the provider's metrics.
	Dimension string
	// TargetGroups are the names of its target groups there.
	TargetGroups            []string
	Targets, HealthyTargets Fact[int]
}

// LifecycleRule is one rule of a bucket's lifecycle, as far as judging needs it.
type LifecycleRule struct {
	ID      string
	Enabled bool
	// Prefix is empty for the whole bucket.
	Prefix string
	// Filtered is true when tags or sizes narrow the rule further.
	Filtered bool
	// TransitionDays maps a storage class to the age at which objects go there.
	TransitionDays map[string]int
	// ExpirationDays, NoncurrentExpirationDays and AbortMultipartDays are 0 when
	// the rule has none.
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
	// LifecycleDocument is the lifecycle as the provider returned it, byte for byte;
	// empty where there is none. MinimumSize is its setting of which small objects move.
	LifecycleDocument Fact[string]
	MinimumSize       string
	// Sizes is the stored bytes by storage class (STANDARD, STANDARD_IA, GLACIER,
	// DEEP_ARCHIVE, …).
	Sizes   Fact[map[string]int64]
	Objects Fact[int64]
	// Uploads are multipart uploads begun over 7 days ago and never completed.
	Uploads Fact[Uploads]
	// Noncurrent is the size of replaced or deleted versions. Of it Locked is the part that the bucket's
	// default retention still keeps, the last of it until LockedUntil; DeleteMarkers is how many
	// objects a delete marker hides.
	Noncurrent    Fact[Listing]
	Locked        Stored
	LockedUntil   time.Time
	DeleteMarkers int64
	// MFADelete says whether deleting takes a second factor; S3 takes no lifecycle then.
	MFADelete Fact[bool]
	// ObjectLock is the protection of versions from deletion.
	ObjectLock Fact[ObjectLock]
	// ReplicatesTo are the buckets that its objects are copied to, ReplicatedFrom those of the
	// observation that copy objects into it. Either is unknown where replication was not read.
	ReplicatesTo, ReplicatedFrom Fact[[]string]
	// Prefixes is what a bounded listing saw under each top-level prefix.
	Prefixes Fact[[]Prefix]
	// SeenBy says how the objects were seen, for people: "listing of 5 calls",
	// "S3 Inventory of 2026-11-20".
	SeenBy string
	// Ages is what an analysis says of the whole bucket, as one prefix without a name;
	// AgesBy says which: "Storage Class Analysis of
	// 2026-11-20".
	Ages   Fact[Prefix]
	AgesBy string
}

// ObjectLock is a bucket's setting by which versions cannot be deleted for a time. Single objects
// may have a longer retention, or a legal hold without end, which a bucket does not tell.
type ObjectLock struct {
	Enabled bool
	// Mode is GOVERNANCE or COMPLIANCE, and RetentionDays how long versions that name no
	// retention are kept; 0 is no default.
	Mode          string
	RetentionDays int
}

// Uploads are incomplete multipart uploads.
type Uploads struct {
	Count  int
	Bytes  Fact[int64]
	Oldest time.Time
	// Complete is false when the listing stopped at its bound.
	Complete bool
}

// Listing is a bounded listing's sum.
type Listing struct {
	Stored
	// Complete is false when the listing stopped at its bound; then the figures
	// are lower bounds.
	Complete bool
}

// Prefix is what a bounded listing saw under one prefix.
type Prefix struct {
	Name string
	Listing
	// Standard is the part of it in the standard class. Where it is zero and Class says
	// the standard class, all of it does.
	Standard Stored
	// Reached is what of Standard an enabled lifecycle rule moves or expires, Perhaps what
	// only rules do that tags or dates narrow, which a listing does not show.
	Reached, Perhaps Stored
	// Tiered is the size in Intelligent-Tiering, Instant that in Glacier Instant
	// Retrieval: both answer at once, and a rule for the archive would move them as well.
	Tiered, Instant Stored
	// Small counts objects of the standard class under 128 KiB, which gain nothing in
	// infrequent access and are not moved.
	Small Stored
	// Older maps an age in days (30, 90, 180) to what of the standard class is older than
	// that and reached by no rule, small objects left out.
	Older map[int]Stored
	// Read maps the same ages to how many bytes of that were read in 30 days; nil where that
	// was not measured.
	Read map[int]int64
	// Newest and Oldest are modification times; zero when nothing was seen.
	Newest, Oldest time.Time
	// Class is the storage class seen most.
	Class string
}

// Repository is a container image repository.
type Repository struct {
	// Images, Bytes: all images; Untagged…: those without a tag; Unpulled…: tagged
	// ones without a pull for 90 days and that are at least that old.
	Images, UntaggedImages, UnpulledImages int
	Bytes, UntaggedBytes, UnpulledBytes    Fact[int64]
	LifecyclePolicy                        Fact[bool]
	// LifecycleDocument is the policy as the provider returned it; empty where there is
	// none.
	LifecycleDocument Fact[string]
	// UntaggedDigests name the images without a tag, sorted.
	UntaggedDigests []string
}

// LogGroup is a group of log streams.
type LogGroup struct {
	StoredBytes Fact[int64]
	// RetentionDays is 0 when logs are kept without end.
	RetentionDays Fact[int]
}

// Notebook is a managed notebook machine. Type is its machine type without the
// service's prefix (ml.).
type Notebook struct {
	VolumeGiB    int64
	LastModified time.Time
	// LastActivity is the kernel's or app's own record of use.
	LastActivity Fact[time.Time]
	// App is true for a studio application.
	App bool
}

// Endpoint is a managed inference endpoint.
type Endpoint struct {
	Variants     []Variant
	Async        bool
	LastModified time.Time // zero is unknown
	// Components says that inference components serve, whose requests are not counted as
	// the endpoint's.
	Components bool
}

// Variant is a part of an endpoint on machines of one type (without the
// service's prefix).
type Variant struct {
	Name       string
	Type       string
	Count      int64
	Serverless bool
}

// TrainingJob is a managed training job that runs or ran.
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
	// Groups are its machines. They are known where the cluster itself could be read.
	Groups Fact[[]HyperPodGroup]
}

// HyperPodGroup is the machines of one type in an instance group.
type HyperPodGroup struct {
	NodeGroup
	// Spot machines, and those of a training plan, are not charged by the hour on demand.
	Spot, Planned bool
	// VolumeGiB is the size of the additional volume of each machine.
	VolumeGiB int64
}

// AutoScalingGroup is a group of machines under one controller.
type AutoScalingGroup struct {
	Min, Max, Desired int64
	Instances         []string
	// ScalingPolicies is how many policies change the group's size by demand or
	// by schedule.
	ScalingPolicies Fact[int]
}

// CapacityReservation is reserved machine capacity that costs whether used or
// not. Type is the machine type.
type CapacityReservation struct {
	Total, Available int64
	// Block is true for a capacity block that is paid up front.
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

// Commitment is a promise to pay for a term. For reserved instances Type is the
// machine type, Region or Zone the scope.
type Commitment struct {
	CommitmentType CommitmentType
	// Count is the number of reserved machines.
	Count int64
	// Platform of reserved machines, as in Instance.
	Platform string
	// Zonal reservations cover only their zone.
	Zonal bool
	// Hourly is what the commitment costs an hour with its upfront part spread
	// over the term.
	Hourly Fact[money.Amount]
	// Family of an instance savings plan: "p4d".
	Family           string
	StartsAt, EndsAt time.Time
}

// FileSystem is a managed file system. Type is efs, fsx-lustre, fsx-windows,
// fsx-ontap or fsx-openzfs.
type FileSystem struct {
	// Sizes is bytes by storage class for efs (STANDARD, IA, ARCHIVE).
	Sizes Fact[map[string]int64]
	// CapacityGiB is the provisioned capacity for fsx.
	CapacityGiB int64
	// StorageType is SSD or HDD for fsx.
	StorageType string
	// ThroughputMBpsPerTiB is the throughput bought with each TiB for lustre.
	ThroughputMBpsPerTiB int64
	// Deployment is SCRATCH_2, PERSISTENT_2, …, SINGLE_AZ_1, MULTI_AZ_1, …
	Deployment string
}

// Cluster is the managed control plane of a Kubernetes cluster.
type Cluster struct {
	// Version is the minor version of Kubernetes: "1.29".
	Version string
	// ExtendedSince is when the provider's extended support of the version began, which
	// costs more; zero where it has not, or is not known.
	ExtendedSince time.Time
}

// Table is a table of a managed key-value store. Indexes are the names of its secondary
// indexes, whose units are in ReadUnits and WriteUnits, the provisioned capacity.
type Table struct {
	OnDemand              bool
	ReadUnits, WriteUnits int64
	Indexes               []string
}

// VPCEndpoint is an interface endpoint of a private network, charged in each zone.
type VPCEndpoint struct {
	Service, VPC string
	Zones        int64
}

// Database is a managed database, cache, warehouse or search cluster. Type is the class.
type Database struct {
	Engine      string // postgres, opensearch, …
	Count       int64
	MultiAZ     bool
	StorageGiB  int64
	StorageType string
	// IOPS and ThroughputMiBps are provisioned; 0 where the storage type has none.
	IOPS, ThroughputMiBps int64
	// License is the provider's word for who licenses the engine: "license-included",
	// "bring-your-own-license"; empty where the engine has no paid license.
	License string
	// Cluster is the database cluster that it is a member of; empty where it is none.
	Cluster string
	// Nodes are the groups of machines besides those of its own type.
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
