package finding

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/spot"
)

const day = 24 * time.Hour

// Thresholds are the lines that the rules draw. A field that is zero takes its
// default: no threshold is ever "0 days", which would judge everything.
type Thresholds struct {
	// Coverage is the least share of a window with samples for an answer; under it the
	// answer is unknown. 0.9 (safety rule).
	Coverage float64 `yaml:"coverage_share"`
	// MinAge is the least age of a machine before it can be idle: 24 hours, the
	// least window of the idle rules.
	MinAge time.Duration `yaml:"min_age"`
	// StoppedAge is how long a machine is stopped before its disks are waste: 30
	// days, common practice.
	StoppedAge time.Duration `yaml:"stopped_age"`
	// OverdueAge is how long transient training may run: 12 hours, the usual dead
	// man's switch.
	OverdueAge time.Duration `yaml:"overdue_age"`
	// TrainingAge is how long a managed training job may run without a warning: 24
	// hours, common practice.
	TrainingAge time.Duration `yaml:"training_age"`
	// TrainingStalled is how long every GPU of a training run stays at 0% before
	// it is stalled: 6 hours, longer than evaluations and checkpoint writes take.
	TrainingStalled time.Duration `yaml:"training_stalled"`
	// EndpointIdle is how long an endpoint has no invocation: 14 days (Trusted
	// Advisor and common practice).
	EndpointIdle time.Duration `yaml:"endpoint_idle"`
	// NotebookIdle is how long a notebook in service sees no use: 14 days.
	NotebookIdle time.Duration `yaml:"notebook_idle"`
	// LoadBalancerWindow is how long a load balancer has few requests before it is idle: 7
	// days (Trusted Advisor).
	LoadBalancerWindow time.Duration `yaml:"load_balancer_window"`
	// LoadBalancerRequests is the requests a day under which it is idle: 100 (Trusted
	// Advisor).
	LoadBalancerRequests float64 `yaml:"load_balancer_requests"`
	// NATWindow is how long a gateway carries 0 bytes: 30 days.
	NATWindow time.Duration `yaml:"nat_window"`
	// DatabaseIdle is how long a database, cache or warehouse has no connection or
	// request: 7 days (Trusted Advisor).
	DatabaseIdle time.Duration `yaml:"database_idle"`
	// DatabaseCPU is the CPU peak, in percent, under which the next smaller size of a
	// database may do: 30, which is 60 with half the vCPUs.
	DatabaseCPU float64 `yaml:"database_cpu_pct"`
	// TableIdle is how long nothing of a table's provisioned capacity is used: 14 days.
	TableIdle time.Duration `yaml:"table_idle"`
	// TableUsed is the peak consumption of a table, in percent of its provisioned capacity, under
	// which it is overprovisioned: 20.
	TableUsed float64 `yaml:"table_used_pct"`
	// AlwaysOn is the share of the hours of a week under which a machine that is
	// always on should have a schedule: half. A machine that works 8 of 24 hours does.
	AlwaysOn float64 `yaml:"always_on_share"`

	// VolumeUnattached is how long a volume is unattached and sees no I/O:
	// 7 days (Trusted Advisor; AWS Compute Optimizer waits for 32).
	VolumeUnattached time.Duration `yaml:"volume_unattached"`
	// SnapshotAge is the age of an old snapshot: 90 days.
	SnapshotAge time.Duration `yaml:"snapshot_age"`
	// ImageUnused is how long an image was not launched: 90 days.
	ImageUnused time.Duration `yaml:"image_unused"`
	// CheckpointStale is the age of the newest object at which checkpoints count as
	// stale: 90 days.
	CheckpointStale time.Duration `yaml:"checkpoint_stale"`
	// InfrequentDays is the age in days at which the fix of a bucket moves training data to
	// infrequent access: 30.
	InfrequentDays int `yaml:"infrequent_days"`
	// ArchiveDays is the age in days at which it moves them to the archive: 90.
	ArchiveDays int `yaml:"archive_days"`
	// ExpireDays is the age in days at which it expires experiments: 180.
	ExpireDays int `yaml:"expire_days"`
	// NoncurrentDays is how many days the fix keeps replaced versions: 30.
	NoncurrentDays int `yaml:"noncurrent_days"`
	// MultipartDays is the age in days at which incomplete uploads are aborted: 7.
	MultipartDays int `yaml:"multipart_days"`
	// LogGroupGiB is the size from which a log group without retention is a sure
	// finding: 1 GiB.
	LogGroupGiB int `yaml:"log_group_gib"`
	// LogRetentionDays is the retention in days that the fix sets: 30.
	LogRetentionDays int `yaml:"log_retention_days"`

	// Interruptions is how often a spot machine is taken away; the zero value is
	// [spot.Unmeasured], the rate of estimates.
	Interruptions spot.Interruptions `yaml:"-"`
	// Advisor has the published bands of interruptions; nil without its data.
	Advisor *spot.Advisor `yaml:"-"`
	// RightsizeSaving is the least share of a machine's cost that makes a change of
	// type worth its work: 0.1.
	RightsizeSaving float64 `yaml:"rightsize_saving_share"`
	// InferenceTarget is the utilization to size inference for, in percent: 70, the
	// middle of the usual 60 to 80.
	InferenceTarget float64 `yaml:"inference_target_pct"`
	// ModelCost is the monthly cost, in dollars, from which a busy inference fleet
	// is worth the work of optimizing its model: 1000.
	ModelCost int `yaml:"model_cost_usd"`
	// Transfer is the monthly cost, in dollars, from which a transfer on the bill is
	// worth a look: 10.
	Transfer int `yaml:"transfer_usd"`
	// Downloads is how often a bucket's content is downloaded in a month before it is
	// the same data again and again: 3.
	Downloads float64 `yaml:"downloads"`
	// CommitmentGap is the monthly cost, in dollars, of compute on demand in a region
	// from which commitments are worth a plan: 1000.
	CommitmentGap int `yaml:"commitment_gap_usd"`
	// ReservationUnused is the share of a capacity reservation above which it is unused: 0.1
	// (AWS).
	ReservationUnused float64 `yaml:"reservation_unused_share"`
	// ReservationWindow is the time over which that share is taken: 7 days (AWS).
	ReservationWindow time.Duration `yaml:"reservation_window"`
}

// DefaultThresholds returns the thresholds in use in the field; each field names
// its own.
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

// withDefaults fills zero fields and refuses values that no rule can use.
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
