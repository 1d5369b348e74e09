// Package spec reads specifications of work: a job or a session of curfew, or a Kubernetes workload
// that requests GPUs. Files are read strictly, with the line and column of every mistake, and a
// specification has a hash that approvals are bound to.
package spec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Versions of the files.
const (
	JobVersion     = "curfew.job/v1"
	SessionVersion = "curfew.session/v1"
)

// Kind is the kind of the specified work.
type Kind string

// The kinds.
const (
	Job     Kind = "job"     // a batch workload that ends by itself
	Session Kind = "session" // an interactive machine with a lease
)

// Capacity is the purchase option of machines.
type Capacity string

// The capacities. The default is OnDemand, which is never interrupted.
const (
	OnDemand Capacity = "on-demand"
	Spot     Capacity = "spot"
	Auto     Capacity = "auto" // spot while available, otherwise on demand
)

// Spec is one job or session.
type Spec struct {
	Kind Kind
	Name string
	// Purpose is unknown if a job does not state it; a session's default is experimentation.
	Purpose   inventory.Purpose
	Owner     inventory.Owner
	Resources Resources
	Capacity  Capacity
	// Regions are the allowed regions, the preferred first; if empty the configuration decides.
	Regions []string
	// Setup and Run are shell commands; a session has no Run.
	Setup, Run string
	// Duration is the declared time that the work takes without interruption; 0 if not declared.
	Duration time.Duration
	// MaxRuntime limits a job including lost work and restarts, Deadline is counted from its
	// submission, and Lease limits a session. 0 for none.
	MaxRuntime, Deadline, Lease time.Duration
	// MaxCost limits the cost; 0 for none.
	MaxCost money.Amount
	// DiskGiB is the size of each machine's root disk; 0 for the configured one.
	DiskGiB int64
	// Checkpoint configures how work is saved; nil if it is not saved.
	Checkpoint *Checkpoint
	// Data are the inputs of the work.
	Data []Dataset
	// Artifacts are the outputs of the work; nil if there are none.
	Artifacts *Artifacts
	Retries   Retries
	// Work is the folder of a session that is saved beyond its end; nil for none.
	Work *Work
	// Idle ends a session after this idle time; 0 for the configured one.
	Idle time.Duration
	// Ports are the machine's ports that connect may forward.
	Ports []int
	// Workdir is the folder of a job's code, relative to its file; Code is the SHA-256 of its
	// archive, which binds an approval to the code. Empty for none.
	Workdir, Code string
	// Stall ends a job that makes no progress for this time; 0 for never.
	Stall time.Duration
	// ReplaceOne replaces a lost node of a job and restarts the others; otherwise all are launched again.
	ReplaceOne bool
	// Env is added to the environment. Secrets maps variables to the provider's parameter or secret
	// that is read at run time.
	Env, Secrets map[string]string
	// Image is the provider's identifier of the machine image; empty for the configured one.
	Image string
	// Unknown lists the parts that the file leaves open and that affect cost, such as a fan-out
	// known only at run time. It is empty for a job or session of curfew.
	Unknown []string
	// Selector maps required node labels to their allowed values; nil for a job or session.
	Selector map[string][]string
	// Digest is the SHA-256 of the whole manifest file, so that an approval covers settings without
	// a field in Spec; empty for a job or session.
	Digest string

	// File and Line are the position of its start.
	File string
	Line int
}

// Unread reports whether the resources are unknown; Unknown has the reason.
func (s *Spec) Unread() bool { return s.Resources == (Resources{}) && len(s.Unknown) > 0 }

// Resources are the requested machines.
type Resources struct {
	// GPU names the accelerator as in the price book ("A100-80GB") and GPUs is the number per node.
	// InstanceType is a machine type. A file of curfew has one or the other; a manifest may have
	// both, and then nodes share machines.
	GPU          string
	GPUs         int
	InstanceType string
	// CPUs is the number of CPUs per node for work without GPUs; 0 if not stated.
	CPUs int
	// Nodes is the number of machines that work together, at least 1; in a manifest, the number of
	// pods.
	Nodes int
}

// Checkpoint describes how work is saved.
type Checkpoint struct {
	// Dir is the folder that the work writes, To the object store.
	Dir, To string
	// Every is the interval; 0 leaves it to the planner.
	Every time.Duration
	// Keep is the number of checkpoints to keep; at least 1.
	Keep int
	// SizeBytes is the size of one checkpoint; 0 if unknown.
	SizeBytes int64
	// Restart is the time from an interruption until work resumes, without the lost work; 0 if not
	// declared.
	Restart time.Duration
	// Done is a pattern of the marker file of a finished checkpoint; empty for none.
	Done string
}

// Work is a folder that is saved while a session runs and before it ends, and restored when the
// session starts again.
type Work struct {
	// Dir is a path on the machine: absolute, or below "~/", the home of its user.
	Dir string
	// To is the object store; empty for the configured one.
	To string
	// Every is the time between snapshots; 0 for the configured one.
	Every time.Duration
}

// Dataset is an input of the work.
type Dataset struct {
	URI string
	// SizeBytes is the size of the input; 0 if unknown.
	SizeBytes int64
}

// Shown removes user, query and fragment from an address for display: the query of a signed URL
// grants access to anyone.
func Shown(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	bare, hidden := rest, ""
	if i := strings.IndexAny(bare, "?#"); i >= 0 {
		bare, hidden = bare[:i], "?[redacted]"
	}
	host, _, _ := strings.Cut(bare, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		bare = "[redacted]@" + strings.TrimPrefix(bare, host[:i+1])
	}
	return scheme + "://" + bare + hidden
}

// Artifacts are the outputs of the work.
type Artifacts struct{ Dir, To string }

// Retries bound the restarts of a job.
type Retries struct {
	// Interruptions counts restarts after a machine was lost, Errors those after failures of the
	// job itself.
	Interruptions, Errors int
}

// DefaultInterruptions is the default number of restarts after interruptions.
const DefaultInterruptions = 20

// DefaultKeep is the default number of checkpoints to keep.
const DefaultKeep = 3

// Cap returns the shortest of MaxRuntime, Deadline and Lease with the name of its key, or 0 and ""
// if there is none.
func (s *Spec) Cap() (time.Duration, string) {
	least, key := time.Duration(0), ""
	for _, c := range []struct {
		d   time.Duration
		key string
	}{{s.MaxRuntime, "max_runtime"}, {s.Deadline, "deadline"}, {s.Lease, "lease"}} {
		if c.d > 0 && (least == 0 || c.d < least) {
			least, key = c.d, c.key
		}
	}
	return least, key
}

// Hash returns the hexadecimal SHA-256 of the specification's meaning. It does not depend on
// formatting, and changes with the work, its owner, its resources and its bounds.
func (s *Spec) Hash() string {
	h := sha256.New()
	h.Write(s.Canonical())
	// Fields of manifests follow the canonical file, which ends in a newline.
	if s.Digest != "" || len(s.Unknown) > 0 || len(s.Selector) > 0 {
		_ = json.NewEncoder(h).Encode([]any{s.Digest, s.Unknown, s.Selector}) // writing to a hash cannot fail
	}
	return hex.EncodeToString(h.Sum(nil))
}

// canon is the canonical file: fixed order of keys, omitted keys left out.
type canon struct {
	APIVersion string            `json:"apiVersion"`
	Name       string            `json:"name"`
	Purpose    inventory.Purpose `json:"purpose,omitempty"`
	Owner      *inventory.Owner  `json:"owner,omitempty"`
	Resources  canonResources    `json:"resources"`
	Capacity   Capacity          `json:"capacity"`
	Regions    []string          `json:"regions,omitempty"`
	Setup      string            `json:"setup,omitempty"`
	Run        string            `json:"run,omitempty"`
	Duration   string            `json:"duration,omitempty"`
	MaxRuntime string            `json:"max_runtime,omitempty"`
	Deadline   string            `json:"deadline,omitempty"`
	Lease      string            `json:"lease,omitempty"`
	MaxCost    json.Number       `json:"max_cost,omitempty"`
	Disk       string            `json:"disk,omitempty"`
	Checkpoint *canonCheckpoint  `json:"checkpoint,omitempty"`
	Data       []canonData       `json:"data,omitempty"`
	Artifacts  *canonArtifacts   `json:"artifacts,omitempty"`
	Retries    *canonRetries     `json:"retries,omitempty"`
	Work       *canonWork        `json:"work,omitempty"`
	Idle       string            `json:"idle,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Secrets    map[string]string `json:"secrets,omitempty"`
	Image      string            `json:"image,omitempty"`
	Workdir    *canonWorkdir     `json:"workdir,omitempty"`
	Stall      string            `json:"stall,omitempty"`
	Nodes      *canonNodes       `json:"nodes,omitempty"`
}

type canonNodes struct {
	Replace string `json:"replace"`
}

type canonWorkdir struct {
	Dir    string `json:"dir"`
	SHA256 string `json:"sha256,omitempty"`
}

type canonResources struct {
	GPUs         string `json:"gpus,omitempty"`
	InstanceType string `json:"instance_type,omitempty"`
	CPUs         int    `json:"cpus,omitempty"`
	Nodes        int    `json:"nodes"`
}

type canonCheckpoint struct {
	Dir     string `json:"dir"`
	To      string `json:"to"`
	Every   string `json:"every,omitempty"`
	Keep    int    `json:"keep"`
	Size    string `json:"size,omitempty"`
	Restart string `json:"restart,omitempty"`
	Done    string `json:"done,omitempty"`
}

type canonData struct {
	URI  string `json:"uri"`
	Size string `json:"size,omitempty"`
}

type canonArtifacts struct {
	Dir string `json:"dir"`
	To  string `json:"to"`
}

type canonWork struct {
	Dir   string `json:"dir"`
	To    string `json:"to,omitempty"`
	Every string `json:"every,omitempty"`
}

type canonRetries struct {
	Interruptions int `json:"interruptions"`
	Errors        int `json:"errors"`
}

// Canonical returns the specification as a file in one fixed form that [Parse] reads back. It omits
// fields of manifests.
func (s *Spec) Canonical() []byte {
	c := canon{
		APIVersion: JobVersion, Name: s.Name, Purpose: s.Purpose, Capacity: s.Capacity,
		Regions: s.Regions, Setup: s.Setup,
		Run:      s.Run,
		Duration: durationText(s.Duration), MaxRuntime: durationText(s.MaxRuntime), Deadline: durationText(s.Deadline),
		Lease: durationText(s.Lease),
		Resources: canonResources{
			InstanceType: s.Resources.InstanceType, CPUs: s.Resources.CPUs, Nodes: s.Resources.Nodes,
		},
		Stall: durationText(s.Stall),
		Idle:  durationText(s.Idle), Ports: s.Ports, Env: s.Env, Secrets: s.Secrets, Image: s.Image}
	if s.Kind == Session {
		c.APIVersion = SessionVersion
	} else {
		c.Retries = &canonRetries{s.Retries.Interruptions, s.Retries.Errors}
	}
	if s.ReplaceOne {
		c.Nodes = &canonNodes{replaceOne}
	}
	if s.Owner != (inventory.Owner{}) {
		c.Owner = &s.Owner
	}
	if s.Resources.GPUs > 0 {
		c.Resources.GPUs = fmt.Sprintf("%s:%d", s.Resources.GPU, s.Resources.GPUs)
	}
	if s.MaxCost > 0 {
		c.MaxCost = json.Number(s.MaxCost.String())
	}
	if s.DiskGiB > 0 {
		c.Disk = fmt.Sprintf("%dGiB", s.DiskGiB)
	}
	if p := s.Checkpoint; p != nil {
		c.Checkpoint = &canonCheckpoint{
			p.Dir, p.To, durationText(p.Every), p.Keep, sizeText(p.SizeBytes), durationText(p.Restart),
			p.Done,
		}
	}
	for _, d := range s.Data {
		c.Data = append(c.Data, canonData{d.URI, sizeText(d.SizeBytes)})
	}
	if a := s.Artifacts; a != nil {
		c.Artifacts = &canonArtifacts{a.Dir, a.To}
	}
	if s.Workdir != "" || s.Code != "" {
		c.Workdir = &canonWorkdir{cmp.Or(s.Workdir, "."), s.Code}
	}
	if w := s.Work; w != nil {
		c.Work = &canonWork{w.Dir, w.To, durationText(w.Every)}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(c) // strings and integers always encode
	return b.Bytes()
}
