// Package change defines the exact change of one resource: the verb, the document that is sent byte
// for byte, and the arguments. A finding makes the value when it prices its fix. Preview, commands,
// approval, call, confirmation and undo use that value; none derives it again.
package change

import (
	"encoding/json"
	"slices"
)

// Verb is a kind of change. Verbs of the ladder have the names of the policy language's verbs;
// people carry out the others by hand.
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

	// These change no resource: they advise people.
	Notify        Verb = "notify"
	Advise        Verb = "advise"
	Measure       Verb = "measure"
	Reroute       Verb = "reroute"
	Use           Verb = "use"
	UseCommitment Verb = "use-commitment"
	Plan          Verb = "plan"
)

// Change is a change of one resource. The zero Change does nothing.
type Change struct {
	Verb Verb `json:"verb"`
	// Document is sent as is: the lifecycle of a bucket (XML) or of a repository (JSON), including
	// the rules that curfew did not add.
	Document string `json:"document,omitempty"`
	// Before is the document that Document replaces, as the provider returned it; empty without
	// one. Undo restores it byte for byte.
	Before    string    `json:"before,omitempty"`
	Arguments Arguments `json:"arguments,omitzero"`
}

// Arguments are the arguments of a verb besides a document. A zero field is not given.
type Arguments struct {
	// Snapshot are the volumes to save before anything is deleted.
	Snapshot []string `json:"snapshot,omitempty"`
	// RetentionDays is the new retention of events; RetentionBefore the previous one, 0 for
	// unlimited.
	RetentionDays   int `json:"retention_in_days,omitempty"`
	RetentionBefore int `json:"retention_before_days,omitempty"`
	// MinimumSize is the setting of S3 for moving small objects. It belongs to the document but is
	// not in it.
	MinimumSize string `json:"transition_default_minimum_object_size,omitempty"`
	// Type is the new machine or volume type.
	Type string `json:"type,omitempty"`
	// IOPS and ThroughputMiBps are the provisioned performance; 0 is the included one.
	IOPS            int64 `json:"iops,omitempty"`
	ThroughputMiBps int64 `json:"throughput_mibps,omitempty"`
	// Count is the remaining number of machines; nil if the verb changes no count. Part is the
	// affected part of the resource: a variant of an endpoint. Group is the Auto Scaling group of a
	// machine. For advice to grow a fleet, Count is the number of machines to add.
	Count *int64 `json:"count,omitempty"`
	Part  string `json:"part,omitempty"`
	Group string `json:"group,omitempty"`
	// Members are the machines of a group to end, and no others; Count is the number that remains.
	// For advice to shrink a fleet they are the machines to remove.
	Members []string `json:"members,omitempty"`
	// Tags are the tags to write. Keys are tags whose values a person has to provide.
	Tags map[string]string `json:"tags,omitempty"`
	Keys []string          `json:"keys,omitempty"`
	// Images are image digests.
	Images []string `json:"images,omitempty"`
	// Region is the destination, Image the machine image to start from.
	Region string `json:"region,omitempty"`
	Image  string `json:"image,omitempty"`
	// Week is the schedule of a machine.
	Week *Week `json:"week,omitempty"`
}

// Week is a weekly schedule: running from Start to Stop, as "08:00" in UTC, on each of Days, as
// "Mon". If Stop is not after Start it is on the next day.
type Week struct {
	Start string   `json:"start"`
	Stop  string   `json:"stop"`
	Days  []string `json:"days"`
}

// StopDays returns the days on which the machine is stopped: Days, or the days after them if it
// runs past midnight.
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

// Weekdays are the days of a week in schedules.
var Weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// Action returns the name of the change, for people and documents.
func (c Change) Action() string {
	if len(c.Arguments.Snapshot) > 0 && (c.Verb == Delete || c.Verb == Terminate) {
		return "snapshot-then-" + string(c.Verb)
	}
	return string(c.Verb)
}

// Equal reports whether two changes have the same JSON, or both have no verb.
func (c Change) Equal(other Change) bool {
	if c.Verb == "" && other.Verb == "" {
		return true
	}
	a, errA := json.Marshal(c)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && string(a) == string(b)
}
