package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tags defined by curfew.
const (
	TagLifetime  = "curfew:lifetime"    // ephemeral or persistent
	TagManaged   = "curfew:managed"     // true: policies may act on it
	TagScale     = "curfew:scale"       // true: the acting role may set its size, persistent or not
	TagKeepUntil = "curfew:keep-until"  // RFC 3339 time or a date: exempt until then
	TagPurpose   = "curfew:purpose"     // one of the purposes
	TagDataURI   = "curfew:data"        // s3://bucket/prefix the machine works on
	TagLease     = "curfew:lease-until" // RFC 3339 time or a date: the right to run until then
	// a duration such as 45m, at most MaxIdle: the idle period after which the resource is to end
	TagIdle  = "curfew:idle"
	TagGang  = "curfew:gang"  // the run whose machines work together
	TagDisks = "curfew:disks" // scratch: the disks of this machine may be lost
	TagHold  = "curfew:hold"  // the budget hold under which the resource was started

	// Tags of launched resources.
	TagSession      = "curfew:session"      // the id of its session
	TagIntent       = "curfew:intent"       // the token of its launch
	TagNode         = "curfew:node"         // the node whose lost machine it replaces
	TagInstallation = "curfew:installation" // the curfew installation that launched it; others ignore it

	// TagAdopted marks a machine that a person started and put under a lease, instead of the tags
	// of a launch: cleanups of launched machines ignore it.
	TagAdopted = "curfew:adopted" // the id of its session
)

// MaxIdle is the longest value of TagIdle. Verdicts have to look back as far, so a longer one would
// make every pass read more.
const MaxIdle = 12 * time.Hour

// DisksScratch is the value of TagDisks.
const DisksScratch = "scratch"

// TagMapping maps tag keys to owner fields. Keys are compared without case, and -, _, space and :
// in them are ignored ("Cost-Center", "cost_center"). The first key of a list with a value wins.
type TagMapping struct {
	// Team are the keys of the team.
	Team []string `yaml:"team"`
	// Project are the keys of the project.
	Project []string `yaml:"project"`
	// User are the keys of the person.
	User []string `yaml:"user"`
	// Environment are the keys of the environment.
	Environment []string `yaml:"environment"`
	// Production are additional names of production environments, besides prod, prd, live and
	// production.
	Production []string `yaml:"production" json:",omitempty"`
	// CostCenter are the keys of the cost center.
	CostCenter []string `yaml:"cost_center"`
	// Purpose are the keys of the purpose: training, evaluation, experimentation, inference or
	// data. Purpose=transient-ml-training means ephemeral training.
	Purpose []string `yaml:"purpose"`
	// Lifetime are the keys of the lifetime: ephemeral or persistent. Other values are unknown,
	// which counts as persistent.
	Lifetime []string `yaml:"lifetime"`
	// Gang are the keys of the job group, whose machines are judged together.
	Gang []string `yaml:"gang"`
}

// DefaultTagMapping covers the usual spellings.
func DefaultTagMapping() TagMapping {
	return TagMapping{
		Team:        []string{"team", "squad", "group", "owner-team", "curfew:team"},
		Project:     []string{"project", "project-name", "application", "app", "curfew:project"},
		User:        []string{"user", "owner", "created-by", "creator", "owner-email", "curfew:user"},
		Environment: []string{"environment", "env", "stage", "curfew:environment"},
		CostCenter: []string{
			"cost-center", "costcenter", "cost-centre", "costcentre", "billing-code", "curfew:cost-center",
		},
		Purpose:  []string{TagPurpose, "purpose", "workload", "workload-type"},
		Lifetime: []string{TagLifetime, "lifetime"},
		Gang: []string{
			TagGang, "ray-cluster-name", "skypilot-cluster-name", "parallelcluster:cluster-name", "slurm-job-id",
		},
	}
}

// purposes maps normalized tag values to purposes.
var purposes = map[string]Purpose{
	"training": Training, "train": Training, "transientmltraining": Training, "mltraining": Training,
	"finetuning": Training,
	"evaluation": Evaluation, "eval": Evaluation, "benchmark": Evaluation,
	"experimentation": Experimentation, "experiment": Experimentation, "dev": Experimentation,
	"development": Experimentation,
	"research":    Experimentation, "notebook": Experimentation, "interactive": Experimentation,
	"sandbox":   Experimentation,
	"inference": Inference, "serving": Inference, "prediction": Inference, "endpoint": Inference,
	"data": Data, "dataset": Data, "storage": Data, "artifacts": Data,
}

// transientTrainingValue is the value of Purpose that means ephemeral training, the convention of
// dead man's switches.
const transientTrainingValue = "transientmltraining"

// Apply derives owner, lifetime, purpose, management and exemption of r from its tags. An
// unreadable value counts as absent, except for keep-until: it is returned as an error and keeps
// the resource without end, because a typing mistake must not lose an exemption.
func (m TagMapping) Apply(r *Resource) error {
	norm := normalizeTags(r.Tags)
	first := func(keys []string) string { return firstValue(norm, keys) }
	r.Owner = m.owner(norm)
	r.Purpose = purposes[normalizeKey(first(m.Purpose))]
	r.Lifetime = LifetimeUnknown
	switch lt := Lifetime(strings.ToLower(first(m.Lifetime))); lt {
	case Ephemeral, Persistent:
		r.Lifetime = lt
	case LifetimeUnknown:
		if normalizeKey(norm["purpose"]) == transientTrainingValue {
			r.Lifetime, r.Purpose = Ephemeral, Training
		}
	}
	r.Managed = strings.EqualFold(norm[normalizeKey(TagManaged)], "true")
	r.ScratchDisks = strings.EqualFold(norm[normalizeKey(TagDisks)], DisksScratch)
	r.Gang = first(m.Gang)
	r.LeaseUntil = time.Time{}
	if t, err := parseKeepUntil(norm[normalizeKey(TagLease)]); err == nil {
		r.LeaseUntil = t
	}
	r.IdleLimit = 0
	if d, err := time.ParseDuration(norm[normalizeKey(TagIdle)]); err == nil && d > 0 && d <= MaxIdle {
		r.IdleLimit = d
	}
	r.KeepUntil = time.Time{}
	if v := norm[normalizeKey(TagKeepUntil)]; v != "" {
		t, err := parseKeepUntil(v)
		r.KeepUntil = t
		if err != nil {
			return fmt.Errorf("read tag %s of %s: %w", TagKeepUntil, r.ID, err)
		}
	}
	return nil
}

// AffectsPolicies reports whether tags change what policies may do to a resource: whether they may
// act on it, until when and after which idle period, with which disks, and with which machines it
// is judged or charged.
func (m TagMapping) AffectsPolicies(tags map[string]string) bool {
	r := Resource{Tags: tags}
	if err := m.Apply(&r); err != nil {
		return true // an unreadable exemption counts as one without end
	}
	return r.Managed || r.ScratchDisks || r.Lifetime != LifetimeUnknown || r.Gang != "" || r.tag(TagHold) != "" ||
		!r.KeepUntil.IsZero() || !r.LeaseUntil.IsZero() || r.IdleLimit != 0
}

// Owner returns the owner according to tags or labels.
func (m TagMapping) Owner(tags map[string]string) Owner { return m.owner(normalizeTags(tags)) }

// owner is Owner for normalized keys.
func (m TagMapping) owner(norm map[string]string) Owner {
	return Owner{Team: firstValue(norm, m.Team), Project: firstValue(norm, m.Project), User: firstValue(norm, m.User),
		Environment: m.environment(firstValue(norm, m.Environment)), CostCenter: firstValue(norm, m.CostCenter)}
}

// environment returns the environment for a tag's value.
func (m TagMapping) environment(value string) string {
	if slices.ContainsFunc(m.Production, func(name string) bool {
		return strings.EqualFold(strings.TrimSpace(name), value)
	}) {
		return Production
	}
	return strings.ToLower(value)
}

// normalizeTags returns tags by their normalized keys, without empty values.
func normalizeTags(tags map[string]string) map[string]string {
	norm := make(map[string]string, len(tags))
	for _, k := range sortedKeys(tags) {
		if v := strings.TrimSpace(tags[k]); v != "" {
			if n := normalizeKey(k); norm[n] == "" {
				norm[n] = v
			}
		}
	}
	return norm
}

// firstValue returns the value of the first key that has one.
func firstValue(norm map[string]string, keys []string) string {
	for _, k := range keys {
		if v := norm[normalizeKey(k)]; v != "" {
			return v
		}
	}
	return ""
}

// KeepForever is the exemption of a resource with an unreadable keep-until.
var KeepForever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func parseKeepUntil(v string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), nil
		}
	}
	// A date keeps through the whole of that day in every time zone (UTC-12).
	if t, err := time.Parse(time.DateOnly, v); err == nil {
		return t.AddDate(0, 0, 1).Add(12 * time.Hour), nil
	}
	return KeepForever, fmt.Errorf("%q is neither an RFC 3339 time nor a date; the resource is kept", v)
}

// MissingFields returns the required owner fields (team, project, environment, cost-center, user)
// that r lacks, and whether its tags are known at all.
func (r *Resource) MissingFields(required []string) (missing []string, known bool) {
	if r.Tags == nil {
		return nil, false
	}
	for _, k := range required {
		v, ok := map[string]string{"team": r.Owner.Team, "project": r.Owner.Project, "user": r.Owner.User,
			"environment": r.Owner.Environment, "costcenter": r.Owner.CostCenter}[normalizeKey(k)]
		if !ok {
			v = r.tag(k)
		}
		if v == "" {
			missing = append(missing, k)
		}
	}
	return missing, true
}

// tag returns the value of a tag by its normalized key.
func (r *Resource) tag(key string) string {
	for _, k := range sortedKeys(r.Tags) {
		if normalizeKey(k) == normalizeKey(key) && r.Tags[k] != "" {
			return r.Tags[k]
		}
	}
	return ""
}

// SameTagKey reports whether two tag keys are equivalent, as [TagMapping] compares them.
func SameTagKey(a, b string) bool { return normalizeKey(a) == normalizeKey(b) }

func normalizeKey(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '-' || c == '_' || c == ' ' || c == ':' || c == '/' || c == '.':
			return -1
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return c
	}, s)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
