package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Read reads a file of any kind: a job or a session of curfew, or manifests of
// Kubernetes as [ParseManifest] does. Mistakes are an *Error.
func Read(name string, src []byte) ([]*Spec, error) {
	d := &document{file: name}
	bodies, err := d.open(src)
	if err != nil {
		return nil, err
	}
	if t := newTree(bodies); strings.HasPrefix(t.word(bodies[0], "apiVersion"), "curfew.") || t.get(bodies[0], "kind") == nil {
		s, err := d.spec(bodies)
		if err != nil {
			return nil, err
		}
		return []*Spec{s}, nil
	}
	return d.manifests(bodies)
}

// Parse reads one job (curfew.job/v1) or session (curfew.session/v1); name is the
// file's, for errors. Every mistake is an *Error with its line and column: unknown and
// repeated keys, wrong types, values out of range, a second document.
func Parse(name string, src []byte) (*Spec, error) {
	d := &document{file: name}
	bodies, err := d.open(src)
	if err != nil {
		return nil, err
	}
	return d.spec(bodies)
}

var (
	// specName is what a job may be called, in logs, tags and commands.
	specName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	// typeName is a provider's machine type.
	typeName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	regionName = regexp.MustCompile(`^[a-z]{2,}[a-z0-9-]{1,40}[0-9]$`)
	objectURI  = regexp.MustCompile(`^[a-z][a-z0-9+.-]{1,15}://[^/\s]+(/\S*)?$`)
)

// purposes of a job or session.
var purposes = []string{string(inventory.Training), string(inventory.Evaluation), string(inventory.Experimentation),
	string(inventory.Inference), string(inventory.Data)}

// Bounds of numbers in a file. What is above them is a typing mistake.
const (
	maxCount   = 10_000 // of nodes, retries, checkpoints
	maxDiskGiB = 65_536 // the largest volume of EBS
)

func (d *document) spec(bodies []ast.Node) (*Spec, error) {
	root := bodies[0]
	if len(bodies) > 1 {
		return nil, d.at(bodies[1], "a second document: one file holds one job or session")
	}
	s := &Spec{File: d.file, Line: d.at(root, "").Line, Capacity: OnDemand, Retries: Retries{Interruptions: DefaultInterruptions}}
	version := ""
	err := d.pairs(root, "the file", func(key string, _, v ast.Node) (err error) {
		if key == "apiVersion" {
			version, err = d.text(v, key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	switch version {
	case JobVersion:
		s.Kind = Job
	case SessionVersion:
		s.Kind, s.Purpose = Session, inventory.Experimentation
	default:
		return nil, d.at(root, "apiVersion is %s or %s, not %q", JobVersion, SessionVersion, version)
	}
	_, err = d.mapping(root, "a "+string(s.Kind), d.entries(s)...)
	return s, err
}

// entries are the keys of a job or of a session.
func (d *document) entries(s *Spec) []entry {
	duration := func(name string, required bool, out *time.Duration) entry {
		return entry{name, required, func(n ast.Node) (err error) { *out, err = d.duration(n, name); return err }}
	}
	text := func(name string, required bool, out *string) entry {
		return entry{name, required, func(n ast.Node) (err error) { *out, err = d.text(n, name); return err }}
	}
	common := []entry{
		{"apiVersion", true, func(ast.Node) error { return nil }},
		{"name", true, func(n ast.Node) error {
			return d.matching(n, "name", &s.Name, specName, "letters, digits, dots, dashes and underscores are allowed, 100 at most")
		}},
		{"purpose", false, func(n ast.Node) error {
			v, err := d.one(n, "purpose", purposes)
			s.Purpose = inventory.Purpose(v)
			return err
		}},
		{"owner", false, func(n ast.Node) error {
			_, err := d.mapping(n, "owner", text("team", false, &s.Owner.Team), text("project", false, &s.Owner.Project), text("user", false, &s.Owner.User),
				text("environment", false, &s.Owner.Environment), text("cost_center", false, &s.Owner.CostCenter))
			return err
		}},
		{"resources", true, func(n ast.Node) error { return d.resources(n, &s.Resources) }},
		{"capacity", false, func(n ast.Node) error {
			v, err := d.one(n, "capacity", []string{string(Spot), string(OnDemand), string(Auto)})
			s.Capacity = Capacity(v)
			return err
		}},
		{"regions", false, func(n ast.Node) (err error) {
			s.Regions, err = d.texts(n, "regions", func(v string) error {
				if !regionName.MatchString(v) {
					return fmt.Errorf("region %q is not a name such as us-east-1", v)
				}
				return nil
			})
			return err
		}},
		{"max_cost", false, func(n ast.Node) error {
			amount, err := money.ParseAmount(scalar(n))
			if err != nil || amount <= 0 {
				return d.at(n, "max_cost is an amount of dollars over 0, such as 100 or 12.50")
			}
			s.MaxCost = amount
			return nil
		}},
		{"disk", false, func(n ast.Node) error {
			bytes, err := d.size(n, "disk")
			if err == nil && bytes > maxDiskGiB<<30 {
				err = d.at(n, "disk is at most %d GiB", maxDiskGiB)
			}
			s.DiskGiB = (bytes + 1<<30 - 1) >> 30
			return err
		}},
	}
	if s.Kind == Session {
		return append(common, duration("lease", true, &s.Lease))
	}
	return append(common,
		text("setup", false, &s.Setup),
		text("run", true, &s.Run),
		duration("duration", false, &s.Duration),
		duration("max_runtime", false, &s.MaxRuntime),
		duration("deadline", false, &s.Deadline),
		entry{"checkpoint", false, func(n ast.Node) error {
			c := &Checkpoint{Keep: DefaultKeep}
			s.Checkpoint = c
			_, err := d.mapping(n, "checkpoint",
				entry{"dir", true, func(n ast.Node) error { return d.directory(n, "checkpoint.dir", &c.Dir) }},
				entry{"to", true, func(n ast.Node) error { return d.uri(n, "checkpoint.to", &c.To) }},
				duration("every", false, &c.Every),
				entry{"keep", false, func(n ast.Node) (err error) { c.Keep, err = d.count(n, "checkpoint.keep", 1); return err }},
				entry{"size", false, func(n ast.Node) (err error) { c.SizeBytes, err = d.size(n, "checkpoint.size"); return err }},
				duration("restart", false, &c.Restart))
			return err
		}},
		entry{"data", false, func(n ast.Node) error { return d.data(n, s) }},
		entry{"artifacts", false, func(n ast.Node) error {
			s.Artifacts = &Artifacts{}
			_, err := d.mapping(n, "artifacts",
				entry{"dir", true, func(n ast.Node) error { return d.directory(n, "artifacts.dir", &s.Artifacts.Dir) }},
				entry{"to", true, func(n ast.Node) error { return d.uri(n, "artifacts.to", &s.Artifacts.To) }})
			return err
		}},
		entry{"retries", false, func(n ast.Node) error {
			_, err := d.mapping(n, "retries",
				entry{"interruptions", false, func(n ast.Node) (err error) {
					s.Retries.Interruptions, err = d.count(n, "retries.interruptions", 0)
					return err
				}},
				entry{"errors", false, func(n ast.Node) (err error) {
					s.Retries.Errors, err = d.count(n, "retries.errors", 0)
					return err
				}})
			return err
		}})
}

func (d *document) resources(n ast.Node, r *Resources) error {
	r.Nodes = 1
	given, err := d.mapping(n, "resources",
		entry{"gpus", false, func(n ast.Node) error {
			v, err := d.text(n, "gpus")
			if err != nil {
				return err
			}
			if r.GPU, r.GPUs, err = parseGPUs(v); err != nil {
				return d.at(n, "%s", err)
			}
			return nil
		}},
		entry{"instance_type", false, func(n ast.Node) error {
			return d.matching(n, "instance_type", &r.InstanceType, typeName, "it is a machine type such as p4d.24xlarge")
		}},
		entry{"nodes", false, func(n ast.Node) (err error) { r.Nodes, err = d.count(n, "nodes", 1); return err }})
	if err != nil {
		return err
	}
	gpus, instance := given["gpus"], given["instance_type"]
	switch {
	case gpus == nil && instance == nil:
		return d.at(n, `resources needs gpus, such as "A100:8", or instance_type, such as p4d.24xlarge`)
	case gpus != nil && instance != nil:
		return d.at(instance, "resources has gpus or instance_type, not both: the type says which GPUs there are")
	}
	return nil
}

// data reads a list whose items are addresses, or addresses with a size.
func (d *document) data(n ast.Node, s *Spec) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 {
		return d.at(n, `data is a list such as ["s3://datasets/imagenet"]; this is %s`, nodeName(n))
	}
	for _, item := range list.Values {
		var set Dataset
		if _, isMapping := mappingValues(item); !isMapping {
			if err := d.uri(item, "data", &set.URI); err != nil {
				return err
			}
		} else {
			_, err := d.mapping(item, "an item of data",
				entry{"uri", true, func(n ast.Node) error { return d.uri(n, "uri", &set.URI) }},
				entry{"size", false, func(n ast.Node) (err error) { set.SizeBytes, err = d.size(n, "size"); return err }})
			if err != nil {
				return err
			}
		}
		if slices.ContainsFunc(s.Data, func(x Dataset) bool { return x.URI == set.URI }) {
			return d.at(item, "data: %q is given twice", set.URI)
		}
		s.Data = append(s.Data, set)
	}
	return nil
}

// one reads one of several words.
func (d *document) one(n ast.Node, what string, words []string) (string, error) {
	v, err := d.text(n, what)
	if err == nil && !slices.Contains(words, v) {
		err = d.at(n, "%s %q does not exist; it is %s or %s", what, v, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
	}
	return v, err
}

// matching reads a text of a form.
func (d *document) matching(n ast.Node, what string, out *string, form *regexp.Regexp, rule string) error {
	v, err := d.text(n, what)
	if err == nil && !form.MatchString(v) {
		err = d.at(n, "%s %q: %s", what, v, rule)
	}
	*out = v
	return err
}

func (d *document) uri(n ast.Node, what string, out *string) error {
	return d.matching(n, what, out, objectURI, "it is an address such as s3://bucket/prefix")
}

// directory reads an absolute path.
func (d *document) directory(n ast.Node, what string, out *string) error {
	v, err := d.text(n, what)
	if err == nil && !strings.HasPrefix(v, "/") {
		err = d.at(n, "%s %q is not an absolute path such as /out", what, v)
	}
	*out = v
	return err
}

func (d *document) duration(n ast.Node, what string) (time.Duration, error) {
	v, err := d.text(n, what)
	if err != nil {
		return 0, err
	}
	out, err := parseDuration(v)
	if err != nil {
		return 0, d.at(n, "%s %s", what, err)
	}
	return out, nil
}

func (d *document) size(n ast.Node, what string) (int64, error) {
	v, err := d.text(n, what)
	if err != nil {
		return 0, err
	}
	out, err := parseSize(v)
	if err != nil {
		return 0, d.at(n, "%s %s", what, err)
	}
	return out, nil
}
