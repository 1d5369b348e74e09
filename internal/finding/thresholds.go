package finding

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
)

const day = 24 * time.Hour

// Thresholds are the limits of the rules. A zero field takes its default: a threshold of "0 days"
// would match everything.
type Thresholds struct {
	// Coverage is the minimum share of a window with samples; below it the result is unknown. 0.9
	// (safety rule).
	Coverage float64 `yaml:"coverage_share"`
	// MinAge is the minimum age of a machine to count as idle: 24 hours, the shortest window of the
	// idle rules.
	MinAge time.Duration `yaml:"min_age"`
	// StoppedAge is the time after which the disks of a stopped machine are waste: 30 days, common
	// practice.
	StoppedAge time.Duration `yaml:"stopped_age"`
	// OverdueAge is the maximum run time of transient training: 12 hours, the usual dead man's
	// switch.
	OverdueAge time.Duration `yaml:"overdue_age"`
	// TrainingAge is the run time after which a managed training job is reported: 24 hours, common
	// practice.
	TrainingAge time.Duration `yaml:"training_age"`
	// TrainingStalled is the time at 0% of every GPU after which a training run is stalled: 6
	// hours, longer than evaluations and checkpoint writes take.
	TrainingStalled time.Duration `yaml:"training_stalled"`
	// EndpointIdle is the time without an invocation after which an endpoint is idle: 14 days
	// (Trusted Advisor and common practice).
	EndpointIdle time.Duration `yaml:"endpoint_idle"`
	// NotebookIdle is the time without use after which a notebook in service is idle: 14 days.
	NotebookIdle time.Duration `yaml:"notebook_idle"`
	// LoadBalancerWindow is the time with few requests after which a load balancer is idle: 7 days
	// (Trusted Advisor).
	LoadBalancerWindow time.Duration `yaml:"load_balancer_window"`
	// LoadBalancerRequests is the number of requests a day below which it is idle: 100 (Trusted
	// Advisor).
	LoadBalancerRequests float64 `yaml:"load_balancer_requests"`
	// NATWindow is the time without traffic after which a gateway is idle: 30 days.
	NATWindow time.Duration `yaml:"nat_window"`
	// DatabaseIdle is the time without a connection or request after which a database, cache or
	// warehouse is idle: 7 days (Trusted Advisor).
	DatabaseIdle time.Duration `yaml:"database_idle"`
	// DatabaseCPU is the CPU peak, in percent, below which the next smaller size of a database may
	// suffice: 30, which is 60 with half the vCPUs.
	DatabaseCPU float64 `yaml:"database_cpu_pct"`
	// TableIdle is the time without use of its provisioned capacity after which a table is idle: 14
	// days.
	TableIdle time.Duration `yaml:"table_idle"`
	// TableUsed is the peak consumption, in percent of the provisioned capacity, below which a
	// table is overprovisioned: 20.
	TableUsed float64 `yaml:"table_used_pct"`
	// AlwaysOn is the share of the hours of a week with work below which a machine that is always
	// on should have a schedule: half. 8 of 24 hours is less.
	AlwaysOn float64 `yaml:"always_on_share"`

	// VolumeUnattached is the time unattached without I/O after which a volume is unused: 7 days
	// (Trusted Advisor; AWS Compute Optimizer waits for 32).
	VolumeUnattached time.Duration `yaml:"volume_unattached"`
	// SnapshotAge is the age of an old snapshot: 90 days.
	SnapshotAge time.Duration `yaml:"snapshot_age"`
	// ImageUnused is the time without a launch after which an image is unused: 90 days.
	ImageUnused time.Duration `yaml:"image_unused"`
	// CheckpointStale is the age of the newest object at which checkpoints are stale: 90 days.
	CheckpointStale time.Duration `yaml:"checkpoint_stale"`
	// InfrequentDays is the age in days at which a bucket's fix moves training data to infrequent
	// access: 30.
	InfrequentDays int `yaml:"infrequent_days"`
	// ArchiveDays is the age in days at which it moves the data to the archive: 90.
	ArchiveDays int `yaml:"archive_days"`
	// ExpireDays is the age in days at which it expires experiments: 180.
	ExpireDays int `yaml:"expire_days"`
	// NoncurrentDays is the number of days for which the fix keeps noncurrent versions: 30.
	NoncurrentDays int `yaml:"noncurrent_days"`
	// MultipartDays is the age in days at which incomplete uploads are aborted: 7.
	MultipartDays int `yaml:"multipart_days"`
	// LogGroupGiB is the size in GiB from which a log group without retention is a finding of high
	// confidence: 1.
	LogGroupGiB int `yaml:"log_group_gib"`
	// LogRetentionDays is the retention in days that the fix sets: 30.
	LogRetentionDays int `yaml:"log_retention_days"`

	// Interruptions is the interruption rate of spot machines; the zero value is [spot.Unmeasured],
	// the rate of estimates.
	Interruptions spot.Interruptions `yaml:"-"`
	// Advisor has the published interruption bands; nil without them.
	Advisor *spot.Advisor `yaml:"-"`
	// RightsizeSaving is the minimum saving, as a share of a machine's cost, that justifies a
	// change of type: 0.1.
	RightsizeSaving float64 `yaml:"rightsize_saving_share"`
	// InferenceTarget is the target utilization of inference in percent: 70, the middle of the
	// usual 60 to 80.
	InferenceTarget float64 `yaml:"inference_target_pct"`
	// ModelCost is the monthly cost, in dollars, from which optimizing the model of a busy
	// inference fleet pays off: 1000.
	ModelCost int `yaml:"model_cost_usd"`
	// Transfer is the monthly cost, in dollars, from which a transfer on the bill is reported: 10.
	Transfer int `yaml:"transfer_usd"`
	// Downloads is the number of downloads of a bucket's content in a month that indicates repeated
	// downloads: 3.
	Downloads float64 `yaml:"downloads"`
	// CommitmentGap is the monthly cost, in dollars, of on-demand compute in a region from which
	// planning commitments pays off: 1000.
	CommitmentGap int `yaml:"commitment_gap_usd"`
	// ReservationUnused is the share of a capacity reservation above which it counts as unused: 0.1
	// (AWS).
	ReservationUnused float64 `yaml:"reservation_unused_share"`
	// ReservationWindow is the time over which that share is measured: 7 days (AWS).
	ReservationWindow time.Duration `yaml:"reservation_window"`
}

// DefaultThresholds returns the customary thresholds.
func DefaultThresholds() Thresholds {
	return Thresholds{
		Coverage: 0.9, MinAge: day, StoppedAge: 30 * day, OverdueAge: 12 * time.Hour, TrainingAge: day,
		TrainingStalled: 6 * time.Hour, EndpointIdle: 14 * day, NotebookIdle: 14 * day,
		LoadBalancerWindow: 7 * day, LoadBalancerRequests: 100, NATWindow: 30 * day, AlwaysOn: 0.5,
		DatabaseIdle: 7 * day, DatabaseCPU: 30, TableIdle: 14 * day, TableUsed: 20,
		VolumeUnattached: 7 * day, SnapshotAge: 90 * day, ImageUnused: 90 * day, CheckpointStale: 90 * day,
		InfrequentDays: 30, ArchiveDays: 90, ExpireDays: 180, NoncurrentDays: 30, MultipartDays: 7,
		LogGroupGiB: 1, LogRetentionDays: 30,
		Interruptions: spot.Unmeasured(), RightsizeSaving: 0.1, InferenceTarget: 70, ModelCost: 1000, Transfer: 10,
		Downloads: 3, CommitmentGap: 1000,
		ReservationUnused: 0.1, ReservationWindow: 7 * day,
	}
}

// withDefaults fills zero fields and refuses unusable values.
func (t Thresholds) withDefaults() (Thresholds, error) {
	set, defaults := reflect.ValueOf(&t).Elem(), reflect.ValueOf(DefaultThresholds())
	for i := range set.NumField() {
		v, name := set.Field(i), set.Type().Field(i).Tag.Get("yaml")
		if v.IsZero() {
			v.Set(defaults.Field(i))
		}
		switch {
		case strings.HasSuffix(name, "_share"):
			if !(v.Float() > 0 && v.Float() <= 1) {
				return t, fmt.Errorf("threshold %s is %v: a share must be over 0 and at most 1", name, v)
			}
		case v.CanInt() && v.Int() < 0, v.CanFloat() && !(v.Float() >= 0):
			return t, fmt.Errorf("threshold %s is %v: it must not be negative", name, v)
		}
	}
	if t.InferenceTarget > 100 {
		return t, fmt.Errorf("threshold inference_target_pct is %v: a percentage must be between 0 and 100",
			t.InferenceTarget)
	}
	return t, nil
}
