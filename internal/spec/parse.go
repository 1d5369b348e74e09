package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
)

// reader reads a file with a job, a session or Kubernetes manifests.
type reader struct{ *document.File }

// open parses a file that may be a Kubernetes manifest.
func open(name string, src []byte) (*reader, error) {
	f, err := document.ParseForeign(name, src)
	if err == nil && len(f.Bodies) == 0 {
		_, err = f.Body()
	}
	return &reader{f}, err
}

// Read reads a file of any kind: a job or a session of curfew, or Kubernetes manifests, which may
// yield nothing. A Spec without resources names in Unknown the parts that are not understood.
// Mistakes are a *document.Error.
func Read(name string, src []byte, devices Devices) ([]*Spec, error) {
	d, err := open(name, src)
	if err != nil {
		if templateMark.Match(src) {
			return []*Spec{unrendered(name, src)}, nil
		}
		return nil, err
	}
	if t := (&tree{d.File}); strings.HasPrefix(t.word(d.Bodies[0], "apiVersion"), "curfew.") ||
		t.get(d.Bodies[0], "kind") == nil {
		s, err := d.spec()
		if err != nil {
			return nil, err
		}
		return []*Spec{s}, nil
	}
	return d.manifests(devices)
}

// Parse reads one job (curfew.job/v1) or session (curfew.session/v1); name is the
// file's, for errors. Every mistake is a *document.Error with its line and column: unknown and
// repeated keys, wrong types, values out of range, a second document.
func Parse(name string, src []byte) (*Spec, error) {
	f, err := document.Parse(name, src)
	if err != nil {
		return nil, err
	}
	return (&reader{f}).spec()
}

var (
	// specName matches the names of jobs, which appear in logs, tags and commands.
	specName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	// typeName is a provider's machine type.
	typeName   = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	regionName = lazyregexp.New(`^[a-z]{2,}[a-z0-9-]{1,40}[0-9]$`)
	objectURI  = lazyregexp.New(`^[a-z][a-z0-9+.-]{1,15}://[^/\s]+(/\S*)?$`)
	// storeURI is a writable address; it may be a folder (file:///…).
	storeURI = lazyregexp.New(`^([a-z][a-z0-9+.-]{1,15}://[^/\s]+(/\S*)?|file:///\S+)$`)
	variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	// imageName is a provider's identifier of an image: an ID, a name or a parameter.
	imageName = lazyregexp.New(`^[A-Za-z0-9/][A-Za-z0-9/._:@-]{0,255}$`)
)

// ValidName reports whether a job or session may have this name: letters, digits, dots, dashes and
// underscores, at most 100, starting with a letter or digit.
func ValidName(name string) bool { return specName.MatchString(name) }

// purposes of a job or session.
var purposes = []string{string(inventory.Training), string(inventory.Evaluation), string(inventory.Experimentation),
	string(inventory.Inference), string(inventory.Data)}

// Bounds of numbers in a file. Larger values are typing mistakes.
const (
	maxCount   = 10_000 // of nodes, retries, checkpoints
	maxDiskGiB = 65_536 // the largest volume of EBS
	maxCPUs    = 4_096  // of one machine
	maxPort    = 65_535
	maxValue   = 32_768 // bytes of a variable
)

func (d *reader) spec() (*Spec, error) {
	root, err := d.Body()
	if err != nil {
		return nil, err
	}
	s := &Spec{
		File: d.Name, Line: d.At(root, "").Line, Capacity: OnDemand, Retries: Retries{
			Interruptions: DefaultInterruptions,
		},
	}
	version := ""
	err = d.Pairs(root, "the file", func(key string, _, v ast.Node) (err error) {
		if key == "apiVersion" {
			version, err = d.Text(v, key)
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
		return nil, d.At(root, "apiVersion is %s or %s, not %q", JobVersion, SessionVersion, version)
	}
	_, err = d.Mapping(root, "a "+string(s.Kind), d.entries(s)...)
	return s, err
}

// Shape returns the valid content of a job or session file.
func Shape(k Kind) *document.Shape {
	d := &reader{&document.File{}}
	return document.Describe(func(n ast.Node) error {
		_, err := d.Mapping(n, "", d.entries(&Spec{Kind: k})...)
		return err
	})
}

// entries returns the keys of a job or session.
func (d *reader) entries(s *Spec) []document.Key {
	type kind func(string, string, func(ast.Node) error) document.Key
	duration := func(key kind, name, doc string, out *time.Duration) document.Key {
		return key(name, doc, func(n ast.Node) (err error) { *out, err = d.duration(n, name); return err })
	}
	text := func(key kind, name, doc string, out *string) document.Key {
		return key(name, doc, func(n ast.Node) (err error) { *out, err = d.Text(n, name); return err })
	}
	version, usual := JobVersion, ""
	if s.Kind == Session {
		version, usual = SessionVersion, string(inventory.Experimentation)
	}
	common := []document.Key{
		document.Required("apiVersion", "version of the form", func(n ast.Node) error {
			document.Note(n, document.Shape{Type: document.String, Enum: []string{version}})
			return nil
		}),
		document.Required("name", "letters, digits, dots, dashes and underscores, 100 at most",
			func(n ast.Node) error {
				return d.matching(n, "name", &s.Name, specName,
					"letters, digits, dots, dashes and underscores are allowed, 100 at most")
			}),
		document.Optional("purpose", "what the work is for: decides which budget it counts against",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Default: usual})
				return document.Choice(d.File, n, "purpose", purposes, &s.Purpose)
			}),
		document.Optional("owner", "who pays for it", func(n ast.Node) error {
			_, err := d.Mapping(n, "owner", text(document.Optional, "team", "team", &s.Owner.Team),
				text(document.Optional, "project", "project", &s.Owner.Project),
				text(document.Optional, "user", "person", &s.Owner.User),
				text(document.Optional, "environment", "environment, such as dev or production", &s.Owner.Environment),
				text(document.Optional, "cost_center", "cost center", &s.Owner.CostCenter))
			return err
		}),
		document.Required("resources", "machines that the work needs: gpus, instance_type or cpus",
			func(n ast.Node) error {
				return d.resources(n, &s.Resources)
			}),
		document.Optional("capacity", "how machines are bought; auto is spot while there is some, on-demand otherwise",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Default: string(OnDemand)})
				return document.Choice(d.File, n, "capacity", []string{
					string(Spot), string(OnDemand), string(Auto),
				}, &s.Capacity)
			}),
		document.Optional("regions", "regions that it may run in, the preferred first", func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Pattern: regionName.String()})
			s.Regions, err = d.Texts(n, "regions", func(v string) error {
				if !regionName.MatchString(v) {
					return fmt.Errorf("region %q is not a name such as us-east-1", v)
				}
				return nil
			})
			return err
		}),
		document.Optional("max_cost", "most dollars that it may cost", func(n ast.Node) error {
			document.Note(n, document.Shape{Type: document.Decimal, Over: true})
			amount, err := money.ParseAmount(document.Scalar(n))
			if err != nil || amount <= 0 {
				return d.At(n, "max_cost is an amount of dollars over 0, such as 100 or 12.50")
			}
			s.MaxCost = amount
			return nil
		}),
		document.Optional("disk", "size of the volume of each machine, such as 200GiB", func(n ast.Node) error {
			bytes, err := d.size(n, "disk")
			if err == nil && bytes > maxDiskGiB<<30 {
				err = d.At(n, "disk is at most %d GiB", maxDiskGiB)
			}
			s.DiskGiB = (bytes + 1<<30 - 1) >> 30
			return err
		}),
	}
	if s.Kind == Session {
		return append(common, append(d.sessionEntries(s),
			text(document.Optional, "setup", "command that prepares a machine", &s.Setup),
			duration(document.Required, "lease", "how long the session may run", &s.Lease),
			duration(document.Optional, "idle", "idle time after which the session ends", &s.Idle),
			document.Optional("data", "what the work reads", func(n ast.Node) error { return d.data(n, s) }))...)
	}
	return append(append(common, d.environmentEntries(s)...),
		text(document.Optional, "setup", "command that prepares a machine", &s.Setup),
		text(document.Required, "run", "command that does the work", &s.Run),
		duration(document.Optional, "duration", "how long the work takes without interruption", &s.Duration),
		duration(document.Optional, "max_runtime", "time after which the job ends, lost work and restarts included",
			&s.MaxRuntime),
		duration(document.Optional, "deadline",
			"time from its submission by which the work has to be done", &s.Deadline),
		document.Optional("checkpoint", "how the work is saved", func(n ast.Node) error {
			c := &Checkpoint{Keep: DefaultKeep}
			s.Checkpoint = c
			_, err := d.Mapping(n, "checkpoint",
				document.Required("dir", "directory that the work writes checkpoints to", func(n ast.Node) error {
					return d.directory(n, "checkpoint.dir", &c.Dir)
				}),
				document.Required("to", "object store that keeps them", func(n ast.Node) error {
					return d.store(n, "checkpoint.to", &c.To)
				}),
				duration(document.Optional, "every",
					"time between checkpoints; the planner chooses it where none is given",
					&c.Every),
				document.Optional("keep", "how many are kept", func(n ast.Node) (err error) {
					document.Note(n, document.Shape{Default: strconv.Itoa(DefaultKeep)})
					c.Keep, err = d.Count(n, "checkpoint.keep", 1, maxCount)
					return err
				}),
				document.Optional("size", "size of one checkpoint, such as 14GiB", func(n ast.Node) (err error) {
					c.SizeBytes, err = d.size(n, "checkpoint.size")
					return err
				}),
				duration(document.Optional, "restart",
					"time from an interruption until work continues, without lost work",
					&c.Restart),
				document.Optional("done", "pattern of the marker of a finished checkpoint, such as */DONE",
					func(n ast.Node) error {
						v, err := d.Text(n, "checkpoint.done")
						if err == nil {
							if _, bad := path.Match(v, "x"); bad != nil {
								err = d.At(n, "checkpoint.done %q is not a pattern such as */DONE", v)
							}
						}
						c.Done = v
						return err
					}))
			return err
		}),
		document.Optional("data", "what the work reads", func(n ast.Node) error { return d.data(n, s) }),
		document.Optional("artifacts", "what the work leaves", func(n ast.Node) error {
			s.Artifacts = &Artifacts{}
			_, err := d.Mapping(n, "artifacts",
				document.Required("dir", "directory that the work writes results to", func(n ast.Node) error {
					return d.directory(n, "artifacts.dir", &s.Artifacts.Dir)
				}),
				document.Required("to", "object store that keeps them", func(n ast.Node) error {
					return d.store(n, "artifacts.to", &s.Artifacts.To)
				}))
			return err
		}),
		document.Optional("workdir", "folder of the code, relative to the file; none is copied without it",
			func(n ast.Node) error { return d.workdir(n, s) }),
		duration(document.Optional, "stall", "time without progress after which the job is stopped", &s.Stall),
		document.Optional("retries", "how often the job begins again", func(n ast.Node) error {
			_, err := d.Mapping(n, "retries",
				document.Optional("interruptions", "after machines that were taken away",
					func(n ast.Node) (err error) {
						document.Note(n, document.Shape{Default: strconv.Itoa(DefaultInterruptions)})
						s.Retries.Interruptions, err = d.Count(n, "retries.interruptions", 0, maxCount)
						return err
					}),
				document.Optional("errors", "after failures of the job itself", func(n ast.Node) (err error) {
					document.Note(n, document.Shape{Default: "0"})
					s.Retries.Errors, err = d.Count(n, "retries.errors", 0, maxCount)
					return err
				}))
			return err
		}))
}

// codeHash is the SHA-256 of an archive of code.
var codeHash = lazyregexp.New(`^[0-9a-f]{64}$`)

// workdir reads the folder of a job's code, or the folder with the hash of its archive.
func (d *reader) workdir(n ast.Node, s *Spec) error {
	dir := func(n ast.Node) error {
		v, err := d.Text(n, "workdir")
		if err == nil && v == "" {
			err = d.At(n, "workdir is a folder such as . or src")
		}
		s.Workdir = v
		return err
	}
	return document.Forms(n, document.IfMapping(func(n ast.Node) error {
		_, err := d.Mapping(n, "workdir",
			document.Required("dir", "folder of the code", dir),
			document.Optional("sha256", "hash of the archive of the folder", func(n ast.Node) error {
				return d.matching(n, "workdir.sha256", &s.Code, codeHash, "it is the SHA-256 of an archive")
			}))
		return err
	}), document.Otherwise(dir))
}

func (d *reader) resources(n ast.Node, r *Resources) error {
	r.Nodes = 1
	given, err := d.Mapping(n, "resources",
		document.Optional("gpus", "accelerator and how many each machine needs: A100:8 or A100-80GB",
			func(n ast.Node) error {
				document.Note(n, document.Shape{Pattern: gpuPattern.String()})
				v, err := d.Text(n, "gpus")
				if err != nil {
					return err
				}
				if r.GPU, r.GPUs, err = parseGPUs(v); err != nil {
					return d.At(n, "%s", err)
				}
				return nil
			}),
		document.Optional("instance_type", "machine type, such as p4d.24xlarge", func(n ast.Node) error {
			return d.matching(n, "instance_type", &r.InstanceType, typeName,
				"it is a machine type such as p4d.24xlarge")
		}),
		document.Optional("cpus", "CPUs that each machine needs, where it needs no GPU", func(n ast.Node) (err error) {
			r.CPUs, err = d.Count(n, "cpus", 1, maxCPUs)
			return err
		}),
		document.Optional("nodes", "machines that work together", func(n ast.Node) (err error) {
			document.Note(n, document.Shape{Default: "1"})
			r.Nodes, err = d.Count(n, "nodes", 1, maxCount)
			return err
		}))
	if err != nil {
		return err
	}
	gpus, instance, cpus := given["gpus"], given["instance_type"], given["cpus"]
	switch {
	case gpus == nil && instance == nil && cpus == nil:
		return d.At(n, `resources needs gpus, such as "A100:8", or instance_type, such as p4d.24xlarge, or cpus`)
	case cpus != nil && (gpus != nil || instance != nil):
		return d.At(cpus, "cpus is for machines without GPUs; gpus or instance_type says how many CPUs there are")
	case gpus != nil && instance != nil:
		return d.At(instance, "resources has gpus or instance_type, not both: the type says which GPUs there are")
	}
	return nil
}

// data reads a list whose items are addresses, or addresses with a size.
func (d *reader) data(n ast.Node, s *Spec) error {
	document.Note(n, document.Shape{LeastItems: 1})
	if list, ok := n.(*ast.SequenceNode); document.Scalar(n) != "" || ok && len(list.Values) == 0 {
		return d.At(n, `data is a list such as ["s3://datasets/imagenet"]; this is %s`, document.NodeName(n))
	}
	return d.Items(n, "data", func(item ast.Node) error {
		var set Dataset
		err := document.Forms(item, document.IfMapping(func(item ast.Node) error {
			_, err := d.Mapping(item, "an item of data",
				document.Required("uri", "address, such as s3://bucket/prefix", func(n ast.Node) error {
					return d.uri(n, "uri", &set.URI)
				}),
				document.Optional("size", "how much of it is read, such as 1.5TB", func(n ast.Node) (err error) {
					set.SizeBytes, err = d.size(n, "size")
					return err
				}))
			return err
		}), document.Otherwise(func(item ast.Node) error { return d.uri(item, "data", &set.URI) }))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.Data, func(x Dataset) bool { return x.URI == set.URI }) {
			return d.At(item, "data: %q is given twice", Shown(set.URI))
		}
		s.Data = append(s.Data, set)
		return nil
	})
}

// matching reads a string that matches a pattern.
func (d *reader) matching(n ast.Node, what string, out *string, form *lazyregexp.Regexp, rule string) error {
	document.Note(n, document.Shape{Pattern: form.String()})
	v, err := d.Text(n, what)
	if err == nil && !form.MatchString(v) {
		err = d.At(n, "%s %q: %s", what, v, rule)
	}
	*out = v
	return err
}

func (d *reader) uri(n ast.Node, what string, out *string) error {
	document.Note(n, document.Shape{Pattern: objectURI.String()})
	v, err := d.Text(n, what)
	if err == nil && !objectURI.MatchString(v) {
		err = d.At(n, "%s %q: it is an address such as s3://bucket/prefix", what, Shown(v))
	}
	*out = v
	return err
}

// store reads a writable address.
func (d *reader) store(n ast.Node, what string, out *string) error {
	document.Note(n, document.Shape{Pattern: storeURI.String()})
	v, err := d.Text(n, what)
	if err == nil && !storeURI.MatchString(v) {
		err = d.At(n, "%s %q: it is an address such as s3://bucket/prefix or file:///folder", what, Shown(v))
	}
	*out = v
	return err
}

// directory reads an absolute path, or one below the home of the machine's user.
func (d *reader) directory(n ast.Node, what string, out *string) error {
	document.Note(n, document.Shape{Pattern: "^(~/|/)."})
	v, err := d.Text(n, what)
	if err == nil && (!strings.HasPrefix(strings.TrimPrefix(v, "~"), "/") || len(strings.TrimPrefix(v, "~")) < 2) {
		err = d.At(n, "%s %q is not an absolute path such as /out, or one such as ~/out", what, v)
	}
	*out = v
	return err
}

func (d *reader) duration(n ast.Node, what string) (time.Duration, error) {
	document.Note(n, document.Shape{Pattern: durationForm.String()})
	v, err := d.Text(n, what)
	if err != nil {
		return 0, err
	}
	out, err := parseDuration(v)
	if err != nil {
		return 0, d.At(n, "%s %s", what, err)
	}
	return out, nil
}

func (d *reader) size(n ast.Node, what string) (int64, error) {
	document.Note(n, document.Shape{Pattern: sizePattern.String()})
	v, err := d.Text(n, what)
	if err != nil {
		return 0, err
	}
	out, err := parseSize(v)
	if err != nil {
		return 0, d.At(n, "%s %s", what, err)
	}
	return out, nil
}
