package spec

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// resnet50 is the job in the documentation.
const resnet50 = `apiVersion: curfew.job/v1
name: resnet50
purpose: training
owner: {team: vision, project: ranking, user: ana}
resources: {gpus: "A100:8", nodes: 1}        # or instance_type: p4d.24xlarge
capacity: spot                               # spot | on-demand | auto
regions: [us-east-1, us-west-2]
setup: pip install -r requirements.txt
run: python train.py --resume
max_runtime: 12h
max_cost: 100
deadline: 24h
checkpoint: {dir: /ckpt, to: "s3://bucket/runs", every: 10m, keep: 3}
data: ["s3://datasets/imagenet"]
artifacts: {dir: /out, to: "s3://bucket/artifacts"}
retries: {interruptions: 20, errors: 1}
`

// minimalJob is a job with only the required keys.
const minimalJob = "apiVersion: curfew.job/v1\nname: a\nresources: {gpus: L4}\nrun: x\n"

func TestParseJob(t *testing.T) {
	got, err := Parse("job.yaml", []byte(resnet50))
	if err != nil {
		t.Fatal(err)
	}
	want := &Spec{
		Kind: Job, Name: "resnet50", Purpose: inventory.Training, Owner: inventory.Owner{
			Team: "vision", Project: "ranking", User: "ana",
		},
		Resources: Resources{GPU: "A100", GPUs: 8, Nodes: 1}, Capacity: Spot,
		Regions: []string{"us-east-1", "us-west-2"},
		Setup:   "pip install -r requirements.txt", Run: "python train.py --resume", MaxRuntime: 12 * time.Hour,
		Deadline: 24 * time.Hour, MaxCost: 100 * money.USD,
		Checkpoint: &Checkpoint{Dir: "/ckpt", To: "s3://bucket/runs", Every: 10 * time.Minute, Keep: 3},
		Data:       []Dataset{{URI: "s3://datasets/imagenet"}},
		Artifacts:  &Artifacts{"/out", "s3://bucket/artifacts"}, Retries: Retries{20, 1}, File: "job.yaml", Line: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseDefaults(t *testing.T) {
	job, err := Parse("job.yaml", []byte(minimalJob))
	if err != nil {
		t.Fatal(err)
	}
	want := &Spec{
		Kind: Job, Name: "a", Resources: Resources{GPU: "L4", GPUs: 1, Nodes: 1}, Capacity: OnDemand, Run: "x",
		Retries: Retries{Interruptions: DefaultInterruptions}, File: "job.yaml", Line: 1}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Error("a job: " + diff)
	}
	session, err := Parse("s.yaml",
		[]byte(
			"apiVersion: curfew.session/v1\nname: nb\nresources: {instance_type: g5.xlarge}\nlease: 4h\ndisk: 150GB\n"))
	if err != nil {
		t.Fatal(err)
	}
	want = &Spec{
		Kind: Session, Name: "nb", Purpose: inventory.Experimentation, Resources: Resources{
			InstanceType: "g5.xlarge", Nodes: 1,
		}, Capacity: OnDemand,
		Lease: 4 * time.Hour, DiskGiB: 140, Retries: Retries{Interruptions: DefaultInterruptions},
		File: "s.yaml", Line: 1}
	if diff := cmp.Diff(want, session); diff != "" {
		t.Error("a session: " + diff)
	}
}

// minimalSession is a session with only the required keys.
const minimalSession = "apiVersion: curfew.session/v1\nname: nb\nresources: {gpus: L4}\nlease: 4h\n"

// TestParseSession checks that all keys of a session are read.
func TestParseSession(t *testing.T) {
	got, err := Parse("s.yaml", []byte(`apiVersion: curfew.session/v1
name: nb
resources: {cpus: 2, nodes: 4}
lease: 4h
idle: 30m
ports: [8888, 6006]
work: {dir: ~/work, to: "file:///srv/work", every: 10m}
setup: pip install torch
env: {A: "1"}
secrets: {TOKEN: /curfew/token}
image: ami-0abc
data: ["s3://datasets/imagenet"]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Spec{
		Kind: Session, Name: "nb", Purpose: inventory.Experimentation, Resources: Resources{CPUs: 2, Nodes: 4},
		Capacity: OnDemand, Lease: 4 * time.Hour,
		Idle: 30 * time.Minute, Ports: []int{8888, 6006}, Work: &Work{"~/work", "file:///srv/work", 10 * time.Minute},
		Setup: "pip install torch",
		Env:   map[string]string{"A": "1"}, Secrets: map[string]string{"TOKEN": "/curfew/token"}, Image: "ami-0abc",
		Data:    []Dataset{{URI: "s3://datasets/imagenet"}},
		Retries: Retries{Interruptions: DefaultInterruptions}, File: "s.yaml", Line: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestMistakes checks that each mistake is reported in one line with its position.
func TestMistakes(t *testing.T) {
	edit := func(from, to string) string { return strings.Replace(resnet50, from, to, 1) }
	for _, tc := range []struct{ name, src, want string }{
		{"empty", "", "f.yaml:1:1: the file is empty"},
		{"only a comment", "# nothing\n", "f.yaml:1:1: the file is empty"},
		{"not a mapping", "- a\n", "f.yaml:1:1: the file has keys"},
		{"not text", "\xff", "not UTF-8"},
		{
			"version", edit("job/v1", "job/v2"),
			`f.yaml:1:1: apiVersion is curfew.job/v1 or curfew.session/v1, not "curfew.job/v2"`,
		},
		{"second document", resnet50 + "---\na: 1\n", "f.yaml:18:1: a second document"},
		{
			"unknown key", edit("max_runtime", "max_run_time"),
			`f.yaml:10:1: a job has no key "max_run_time"; it has apiVersion, name`,
		},
		{"repeated key", resnet50 + "name: b\n", "f.yaml:17:1"},
		{"repeated key inside", edit("nodes: 1", "gpus: L4"), "f.yaml:5:29"},
		{"repeated key in quotes", resnet50 + "\"name\": b\n", "f.yaml:17:1"},
		{"no value", edit("max_cost: 100", "max_cost:"), "max_cost has no value"},
		{"glued value", edit("nodes: 1", "nodes:1"), "f.yaml:5:"},
		{"unknown key inside", edit("keep: 3", "kept: 3"), `f.yaml:13:62: checkpoint has no key "kept"`},
		{"missing name", edit("name: resnet50\n", ""), "a job needs name"},
		{"missing run", edit("run: python train.py --resume\n", ""), "a job needs run"},
		{"name", edit("name: resnet50", "name: res net"), `f.yaml:2:7: name "res net": letters`},
		{"name is a number", edit("name: resnet50", "name: 50"), `f.yaml:2:7: name is a text; write "50" in quotes`},
		{
			"purpose", edit("purpose: training", "purpose: fun"),
			`purpose "fun" does not exist; it is training, evaluation, experimentation, inference or data`,
		},
		{
			"gpus", edit("A100:8", "8xA100"),
			`f.yaml:5:19: gpus "8xA100" is not an accelerator and a number such as "A100:8"`,
		},
		{"no gpus", edit("A100:8", "A100:0"), "the number is from 1 to 1024"},
		{
			"both", edit("nodes: 1", "instance_type: p4d.24xlarge"),
			"f.yaml:5:29: resources has gpus or instance_type, not both",
		},
		{
			"neither", edit(`gpus: "A100:8", `, ""),
			`resources needs gpus, such as "A100:8", or instance_type, such as p4d.24xlarge, or cpus`,
		},
		{"nodes", edit("nodes: 1", "nodes: 0"), "f.yaml:5:36: nodes is a whole number from 1 to 10000"},
		{
			"capacity", edit("capacity: spot", "capacity: cheap"),
			`f.yaml:6:11: capacity "cheap" does not exist; it is spot, on-demand or auto`,
		},
		{"region", edit("us-west-2", "Oregon"), `f.yaml:7:22: region "Oregon" is not a name such as us-east-1`},
		{"region twice", edit("us-west-2", "us-east-1"), "is given twice"},
		{"duration", edit("max_runtime: 12h", "max_runtime: 12"), `max_runtime is a text; write "12" in quotes`},
		{
			"duration without unit", edit("max_runtime: 12h", `max_runtime: "12"`),
			`max_runtime "12" is not a duration such as 30m, 12h or 7d`,
		},
		{"no duration", edit("max_runtime: 12h", "max_runtime: 0h"), `is not a duration over 0`},
		{"long duration", edit("max_runtime: 12h", "max_runtime: 99999d"), "is longer than a year"},
		{"money", edit("max_cost: 100", "max_cost: $100"), "f.yaml:11:11: max_cost is an amount of dollars over 0"},
		{"no money", edit("max_cost: 100", "max_cost: 0"), "max_cost is an amount of dollars over 0"},
		{"money in another form", edit("max_cost: 100", "max_cost: 1e3"), "max_cost is an amount of dollars over 0"},
		{"relative path", edit("/ckpt", "ckpt"), `checkpoint.dir "ckpt" is not an absolute path`},
		{
			"not an address", edit("s3://bucket/runs", "bucket/runs"),
			`checkpoint.to "bucket/runs": it is an address such as s3://bucket/prefix`,
		},
		{"data is a text", edit(`["s3://datasets/imagenet"]`, "s3://datasets/imagenet"), "data is a list such as"},
		{
			"data twice", edit(`["s3://datasets/imagenet"]`, "[s3://a, {uri: s3://a, size: 1GiB}]"),
			`data: "s3://a" is given twice`,
		},
		{
			"size", edit(`["s3://datasets/imagenet"]`, "[{uri: s3://a, size: 1Gi}]"),
			`size "1Gi" is not a size such as 200GiB or 1.5TB`,
		},
		{"retries", edit("errors: 1", "errors: -1"), "retries.errors is a whole number from 0 to 10000"},
		{"an alias", "a: &x 1\nb: *x\n", "f.yaml:1:4: an anchor or an alias"},
		{"a job with a lease", resnet50 + "lease: 4h\n", `a job has no key "lease"`},
		{
			"a session without a lease", "apiVersion: curfew.session/v1\nname: a\nresources: {gpus: L4}\n",
			"a session needs lease",
		},
		{
			"a folder that is no folder", minimalSession + "work: {dir: work}\n",
			`f.yaml:5:13: work.dir "work" is not a folder such as ~/work`,
		},
		{"a port", minimalSession + "ports: [0]\n", "f.yaml:5:9: a port is a whole number from 1 to 65535"},
		{"a port twice", minimalSession + "ports: [1, 1]\n", "ports: 1 is given twice"},
		{"a variable", minimalSession + "env: {a-b: c}\n", `f.yaml:5:7: env "a-b": a variable is letters`},
		{"a variable of curfew", minimalSession + "env: {CURFEW_X: c}\n", "are curfew's own"},
		{
			"a variable and a secret", minimalSession + "env: {a: b}\nsecrets: {a: /p}\n",
			"secrets: a is in env and in secrets",
		},
		{"an image", minimalSession + "image: a b\n", `image "a b": it is an image such as`},
		{"cpus with gpus", edit("nodes: 1", "cpus: 1"), "cpus is for machines without GPUs"},
		{
			"no cpus", strings.Replace(
				minimalSession, "gpus: L4", "cpus: 0", 1,
			), "cpus is a whole number from 1 to 4096",
		},
		{
			"nowhere", minimalSession + "work: {dir: ~/w, to: /tmp}\n",
			`work.to "/tmp": it is an address such as s3://bucket/prefix or file:///folder`,
		},
		{
			"a session that runs",
			"apiVersion: curfew.session/v1\nname: a\nresources: {gpus: L4}\nlease: 1h\nrun: x\n",
			`f.yaml:5:1: a session has no key "run"`,
		},
	} {
		_, err := Parse("f.yaml", []byte(tc.src))
		var place *document.Error
		if !errors.As(err, &place) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestHash(t *testing.T) {
	parse := func(src string) *Spec {
		t.Helper()
		s, err := Parse("job.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := parse(resnet50).Hash()
	for name, edit := range map[string][2]string{
		"comment":       {"# or instance_type: p4d.24xlarge", ""},
		"quotes":        {"name: resnet50", `name: "resnet50"`},
		"block style":   {`resources: {gpus: "A100:8", nodes: 1}  `, "resources:\n  nodes: 1\n  gpus: A100:8\n#"},
		"unit":          {"12h", "720m"},
		"decimals":      {"max_cost: 100", "max_cost: 100.00"},
		"default":       {", nodes: 1", ""},
		"a mapping":     {`["s3://datasets/imagenet"]`, "[{uri: s3://datasets/imagenet}]"},
		"order of keys": {"capacity: spot", "\ncapacity:   spot"},
	} {
		src := strings.Replace(resnet50, edit[0], edit[1], 1)
		if src == resnet50 || parse(src).Hash() != want {
			t.Errorf("%s: the same job has another hash", name)
		}
	}
	seen := map[string]string{want: "the job"}
	for name, edit := range map[string][2]string{
		"name": {"name: resnet50", "name: resnet51"}, "purpose": {"purpose: training", "purpose: evaluation"},
		"team": {"team: vision", "team: nlp"},
		"gpus": {"A100:8", "A100:4"}, "gpu": {"A100:8", "H100:8"}, "nodes": {"nodes: 1", "nodes: 2"},
		"capacity": {"capacity: spot", "capacity: auto"},
		"regions":  {"us-west-2", "eu-west-1"}, "setup": {"pip install", "pip3 install"},
		"run":         {"--resume", "--restart"},
		"max_runtime": {"12h", "13h"},
		"max_cost":    {"max_cost: 100", "max_cost: 100.01"}, "deadline": {"24h", "25h"},
		"checkpoint": {"/ckpt", "/ckpts"},
		"every":      {"10m", "11m"},
		"keep":       {"keep: 3", "keep: 4"}, "data": {"imagenet", "imagenet2"}, "artifacts": {"/out", "/outs"},
		"retries": {"interruptions: 20", "interruptions: 21"},
		"errors":  {"errors: 1", "errors: 2"}, "duration": {"deadline: 24h", "deadline: 24h\nduration: 6h"},
		"disk":    {"deadline: 24h", "deadline: 24h\ndisk: 200GiB"},
		"restart": {"keep: 3", "keep: 3, restart: 5m"}, "size": {"keep: 3", "keep: 3, size: 5GiB"},
	} {
		src := strings.Replace(resnet50, edit[0], edit[1], 1)
		h := parse(src).Hash()
		if src == resnet50 || seen[h] != "" {
			t.Errorf("%s: another job has the hash of %s", name, seen[h])
		}
		seen[h] = name
	}
}

// TestHashCoversEveryField checks that every field of a specification affects its hash, including
// fields added later.
func TestHashCoversEveryField(t *testing.T) {
	full := func() *Spec {
		return &Spec{
			Kind: Job, Name: "n", Resources: Resources{GPU: "L4", GPUs: 1, Nodes: 1}, Checkpoint: &Checkpoint{},
			Artifacts: &Artifacts{}, Data: []Dataset{{}},
			Regions: []string{"a"}, Unknown: []string{"b"}, Work: &Work{}, Ports: []int{1}}
	}
	base := full().Hash()
	var walk func(v reflect.Value, path string, s *Spec)
	walk = func(v reflect.Value, path string, s *Spec) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name, s)
			}
			return
		case reflect.Pointer:
			walk(v.Elem(), path, s)
			return
		case reflect.Slice:
			walk(v.Index(0), path, s)
			return
		case reflect.Map:
			key, value := reflect.ValueOf("a"), reflect.New(v.Type().Elem()).Elem()
			if value.Kind() == reflect.String {
				value.SetString("b")
			} else {
				value.Set(reflect.ValueOf([]string{"b"}))
			}
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
			defer v.SetZero()
		case reflect.String:
			old := v.String()
			v.SetString(old + "session"[:7-len(old)%2])
			defer v.SetString(old)
		default:
			old := v.Int()
			v.SetInt(old + int64(time.Second))
			defer v.SetInt(old)
		}
		if path == "Spec.File" || path == "Spec.Line" {
			if s.Hash() != base {
				t.Errorf("%s changes the hash: where a file lies is not what it means", path)
			}
		} else if path == "Spec.Kind" {
			s.Kind = Session
			if s.Hash() == base {
				t.Errorf("%s does not change the hash", path)
			}
		} else if s.Hash() == base {
			t.Errorf("%s does not change the hash", path)
		}
	}
	s := full()
	walk(reflect.ValueOf(s).Elem(), "Spec", s)
}

// TestRoundTrip checks that parsing the canonical form returns the same specification.
func TestRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[A-Za-z0-9 ,:#'"{}\[\]&*!|>%@\\/.\n\t$é世-]{0,40}[a-z]`)
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(maxDuration/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &Spec{
			Kind:    rapid.SampledFrom([]Kind{Job, Session}).Draw(t, "kind"),
			Name:    rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,20}`).Draw(t, "name"),
			Purpose: inventory.Purpose(rapid.SampledFrom(purposes).Draw(t, "purpose")),
			Owner: inventory.Owner{
				Team:       rapid.OneOf(rapid.Just(""), text).Draw(t, "team"),
				CostCenter: rapid.OneOf(rapid.Just(""), text).Draw(t, "cost center"),
			},
			Capacity: rapid.SampledFrom([]Capacity{Spot, OnDemand, Auto}).Draw(t, "capacity"),
			Regions: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"us-east-1", "eu-west-2", "us-gov-west-1"}), 0,
				3,
				rapid.ID).Draw(t, "regions"),
			MaxCost: money.Amount(rapid.Int64Range(0, 1e18).Draw(t, "max cost")),
			DiskGiB: rapid.Int64Range(0, 65536).Draw(t, "disk"),
			Retries: Retries{Interruptions: DefaultInterruptions}, File: "f", Line: 1}
		if len(s.Regions) == 0 {
			s.Regions = nil
		}
		s.Resources.Nodes = rapid.IntRange(1, maxCount).Draw(t, "nodes")
		if rapid.IntRange(0, 4).Draw(t, "without GPUs") == 0 {
			s.Resources.CPUs = rapid.IntRange(1, maxCPUs).Draw(t, "cpus")
		} else if rapid.Bool().Draw(t, "typed") {
			s.Resources.InstanceType = "p4d.24xlarge"
		} else {
			s.Resources.GPU, s.Resources.GPUs = rapid.StringMatching(`[A-Z][A-Z0-9-]{1,9}`).Draw(t,
				"gpu"), rapid.IntRange(1,
				maxGPUs).Draw(t, "gpus")
		}
		if s.Kind == Session {
			s.Lease, s.Idle = max(duration.Draw(t, "lease"), time.Millisecond), duration.Draw(t, "idle")
			s.Setup, s.Image = rapid.OneOf(rapid.Just(""), text).Draw(t, "setup"), rapid.SampledFrom(
				[]string{"", "ami-0abc", "/aws/service/x"}).Draw(t, "image")
			if rapid.Bool().Draw(t, "work") {
				s.Work = &Work{
					"~/work", rapid.SampledFrom([]string{"", "s3://a/b", "file:///x"}).Draw(t, "to"),
					duration.Draw(t, "every"),
				}
				s.Ports, s.Data = []int{rapid.IntRange(1, 65535).Draw(t, "port")}, []Dataset{{"s3://a", 0}}
				s.Env, s.Secrets = map[string]string{"A": text.Draw(t, "value")}, map[string]string{"_b1": "/p/a"}
			}
		} else {
			s.Setup, s.Run = rapid.OneOf(rapid.Just(""), text).Draw(t, "setup"), text.Draw(t, "run")
			s.Duration, s.MaxRuntime, s.Deadline = duration.Draw(t, "duration"), duration.Draw(t,
				"max runtime"), duration.Draw(
				t, "deadline")
			s.Retries = Retries{
				rapid.IntRange(0, maxCount).Draw(t, "interruptions"), rapid.IntRange(0, maxCount).Draw(t, "errors"),
			}
			if rapid.Bool().Draw(t, "checkpoint") {
				s.Checkpoint = &Checkpoint{
					"/ckpt", "s3://a/b", duration.Draw(t, "every"), rapid.IntRange(1, maxCount).Draw(t, "keep"),
					rapid.Int64Range(0, 1<<50).Draw(t, "size"), duration.Draw(t, "restart"),
					rapid.SampledFrom([]string{"", "*/DONE"}).Draw(t, "done"),
				}
				s.Workdir = rapid.SampledFrom([]string{"", ".", "src"}).Draw(t, "workdir")
				if s.Workdir != "" && rapid.Bool().Draw(t, "packed") {
					s.Code = strings.Repeat("0f", 32)
				}
				s.Stall = duration.Draw(t, "stall")
			}
			if rapid.Bool().Draw(t, "data") {
				s.Data = []Dataset{{"s3://a", 0}, {"s3://b", rapid.Int64Range(0, 1<<50).Draw(t, "bytes")}}
				s.Artifacts = &Artifacts{"/out", "s3://c/d"}
			}
		}
		back, err := Parse("f", s.Canonical())
		if err != nil {
			t.Fatalf("%s\n%s", err, s.Canonical())
		}
		if diff := cmp.Diff(s, back); diff != "" || s.Hash() != back.Hash() {
			t.Fatalf("%s\n%s", diff, s.Canonical())
		}
	})
}

func TestQuantities(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "1d12h": 36 * time.Hour, "1.5h": 90 * time.Minute, "1w": 168 * time.Hour,
		"250ms": 250 * time.Millisecond,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for in, want := range map[string]int64{
		"200GiB": 200 << 30, "1.5TB": 1_500_000_000_000, "1 KiB": 1024, "0.5B": 1, "1PiB": 1 << 50,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "h", "-1h", "1", "1y", "1h 2m", "1.h", "9999999999h", "0.0001ms"} {
		if got, err := parseDuration(bad); err == nil {
			t.Errorf("parseDuration(%q) = %s, want an error", bad, got)
		}
	}
	for _, bad := range []string{"", "GiB", "1Gi", "-1GiB", "1e3GB", "0GiB", "999999PiB", "1.5"} {
		if got, err := parseSize(bad); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, src := range []string{
		resnet50, minimalJob,
		"apiVersion: curfew.session/v1\nname: nb\nresources: {instance_type: g5.xlarge}\nlease: 4h\ndisk: 150GB\n",
		minimalSession + "idle: 1m\nports: [1]\nenv: {a: b}\nsecrets: {c: d}\nwork: {dir: ~/w, every: 1m}\nimage: a\nsetup: x\n",
		"a: &x {b: *x}", "? a\n: b",
	} {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("f", src)
		if err != nil {
			checkPosition(t, src, err)
			return
		}
		back, err := Parse("f", s.Canonical())
		if err != nil {
			t.Fatalf("%s\n%s", err, s.Canonical())
		}
		back.Line = s.Line
		if diff := cmp.Diff(s, back); diff != "" || back.Hash() != s.Hash() {
			t.Fatal(diff)
		}
	})
}

// checkPosition checks that an error is one line with a position in the file.
func checkPosition(t *testing.T, src []byte, err error) {
	t.Helper()
	var e *document.Error
	lines := strings.Count(string(src), "\n") + strings.Count(string(src), "\r") + 1
	if !errors.As(err, &e) || e.Line < 1 || e.Line > lines+1 || e.Column < 1 || strings.Contains(e.Message, "\n") {
		t.Fatalf("%v is not in %d lines", err, lines)
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		s, err := Parse("job.yaml", []byte(resnet50))
		if err != nil {
			b.Fatal(err)
		}
		s.Hash()
	}
}
