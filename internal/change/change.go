// Package change says what is done to one resource, exactly: the verb, the document that
// is sent byte for byte, and the arguments. A finding makes the value when it prices its
// fix. Preview, commands, approval, call, confirmation and undo use that value; nothing
// derives it again.
package change

import (
	"encoding/json"
	"slices"
)

// Verb is what is done. Verbs that the ladder carries out have the names of the policy
// language's verbs; people carry out the others by hand.
type Verb string

// The verbs.
const (
	Tag          Verb = "tag"
	Scale        Verb = "scale"
	Stop         Verb = "stop"
	Terminate    Verb = "terminate"
	Delete       Verb = "delete"
	Release      Verb = "release"
	PutRetention Verb = "put-retention"
	PutLifecycle Verb = "put-lifecycle"

	ModifyVolume      Verb = "modify-volume"
	ChangeType        Verb = "change-type"
	Deregister        Verb = "deregister"
	DeleteApp         Verb = "delete-app"
	DeleteUntagged    Verb = "delete-untagged"
	ModifyReservation Verb = "modify-reservation"
	Schedule          Verb = "schedule"
	UseSpot           Verb = "use-spot"
	Move              Verb = "move"

	// These change no resource: they tell people what to look at.
	Notify        Verb = "notify"
	Advise        Verb = "advise"
	Measure       Verb = "measure"
	Reroute       Verb = "reroute"
	Use           Verb = "use"
	UseCommitment Verb = "use-commitment"
	Plan          Verb = "plan"
)

// Change is what is done to one resource. The zero Change does nothing.
type Change struct {
	Verb Verb `json:"verb"`
	// Document is sent exactly so: the lifecycle of a bucket (XML) or of a repository
	// (JSON), rules of others included.
	Document string `json:"document,omitempty"`
	// Before is the document that Document replaces, as the provider returned it; empty
	// where there was none. Undo puts it back byte for byte.
	Before    string    `json:"before,omitempty"`
	Arguments Arguments `json:"arguments,omitzero"`
}

// Arguments are what a verb takes in addition to a document. A field that is zero is not given.
type Arguments struct {
	// Snapshot are the volumes that are saved before anything is deleted.
	Snapshot []string `json:"snapshot,omitempty"`
	// RetentionDays is how long events are kept; RetentionBefore how long they were, 0
	// without end.
	RetentionDays   int `json:"retention_in_days,omitempty"`
	RetentionBefore int `json:"retention_before_days,omitempty"`
	// MinimumSize is the setting of S3 by which small objects move or stay. It belongs
	// to the document but is not in it.
	MinimumSize string `json:"transition_default_minimum_object_size,omitempty"`
	// Type is the machine or volume type that the resource becomes.
	Type string `json:"type,omitempty"`
	// IOPS and ThroughputMiBps are provisioned; 0 is what the type gives for nothing.
	IOPS            int64 `json:"iops,omitempty"`
	ThroughputMiBps int64 `json:"throughput_mibps,omitempty"`
	// Count is how many machines remain; nil where the verb changes no count. Part names
	// what of the resource it is about: a variant of an endpoint. Group is the Auto
	// Scaling group of a machine. Where a fleet of machines is advised to grow, Count is
	// how many are added.
	Count *int64 `json:"count,omitempty"`
	Part  string `json:"part,omitempty"`
	Group string `json:"group,omitempty"`
	// Members are the machines of a group that end, and no others; Count is how many
	// remain then. Where a fleet is advised to shrink they are those to take out.
	Members []string `json:"members,omitempty"`
	// Tags are written with these values. Keys are tags whose values a person gives.
	Tags map[string]string `json:"tags,omitempty"`
	Keys []string          `json:"keys,omitempty"`
	// Images are digests.
	Images []string `json:"images,omitempty"`
	// Region is where the resource goes, Image what it starts from.
	Region string `json:"region,omitempty"`
	Image  string `json:"image,omitempty"`
	// Week is when a machine runs.
	Week *Week `json:"week,omitempty"`
}

// Week is when a machine runs: from Start to Stop, as "08:00" in UTC, on each of Days, as
// "Mon". Where Stop is not after Start it is on the next day.
type Week struct {
	Start string   `json:"start"`
	Stop  string   `json:"stop"`
	Days  []string `json:"days"`
}

// StopDays are the days on which it is stopped: those on which it was started, or the days
// after them where it runs past midnight.
func (w *Week) StopDays() []string {
	if w.Stop > w.Start {
		return w.Days
	}
	out := make([]string, len(w.Days))
	for i, d := range w.Days {
		out[i] = Weekdays[(slices.Index(Weekdays, d)+1)%len(Weekdays)]
	}
	return out
}

// Weekdays are the days of a week as schedules name them.
var Weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// Action names the change in one word, for people and documents.
func (c Change) Action() string {
	if len(c.Arguments.Snapshot) > 0 && (c.Verb == Delete || c.Verb == Terminate) {
		return "snapshot-then-" + string(c.Verb)
	}
	return string(c.Verb)
}

// Equal says whether two changes are one and the same, as they are written. Without a verb
// they do nothing, both.
func (c Change) Equal(other Change) bool {
	if c.Verb == "" && other.Verb == "" {
		return true
	}
	a, errA := json.Marshal(c)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}
