package docs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/test/github"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// world is the environment for the commands of documents: the sandbox's account, the files that
// documents mention, and a state with everything that they need. Each command gets its own copy of
// files and state.
type world struct {
	dir  string
	env  []string
	pull *github.Pull
	// known maps the documents' example ids to real ones.
	known map[string]string
}

// configuration is the curfew.yaml of the world.
const configuration = `aws: {regions: [us-east-1]}
approvers: {ana: [admin], bo: [approver]}
approvals: {accept: [self-declared], github_api: "%s"}
policies: [policies]
governance:
  - {kind: instance, lifetime: ephemeral, instance_store: scratch, reason: the sandbox}
notify:
  webhook: {url_env: CURFEW_HOOK_URL, secret_env: CURFEW_HOOK_SECRET}
  unowned: [webhook]
owners: {defaults: {environment: dev, cost-center: "4711", team: vision, project: ranking}}
budgets:
  - {id: vision, team: vision, purpose: training, amount: 20000}
units:
  - {name: token, per: 1000000, target: 0.20, counts: {file: tokens.csv}}
machines:
  - {name: train-a, gpu: A100-40GB, gpus: 8, vcpus: 96, memory_gib: 1152}
rates: {gpu_hour: {A100-40GB: 1.90}, source: finance, as_of: 2026-01-01}
`

// fuse is a policy that selects most machines at once.
const fuse = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    when: resource.age > duration("1m")
    then: [{warn: {notify: owner, grace: 1s}}, {do: stop, even_if_busy: true}]
    mode: enforce
`

const priceHeader = "cloud,service,name,region,term,above,usd,unit,accelerator,accelerators,source,as_of\n"

const job = `apiVersion: curfew.job/v1
name: %s
purpose: training
owner: {team: vision, project: ranking, user: ana}
resources: {instance_type: g5.xlarge}
regions: [us-east-1]
run: python train.py
max_runtime: %s
`

const pod = `apiVersion: batch/v1
kind: Job
metadata: {name: bert, labels: {team: vision, purpose: training}}
spec:
  template:
    spec:
      activeDeadlineSeconds: 7200
      nodeSelector: {node.kubernetes.io/instance-type: g5.xlarge, topology.kubernetes.io/region: us-east-1}
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
`

// Recorded output of other tools.
const (
	nodes = `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {
"node.kubernetes.io/instance-type": "g5.xlarge", "topology.kubernetes.io/region": "us-east-1"}}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}]}`
	plan = `{"format_version": "1.2", "terraform_version": "1.9.0", "configuration": {"provider_config": {"aws": {"name": "aws",
"full_name": "registry.terraform.io/hashicorp/aws", "expressions": {"region": {"constant_value": "us-east-1"}}}}},
"resource_changes": [{"address": "aws_instance.dev", "mode": "managed", "type": "aws_instance", "name": "dev",
"provider_name": "registry.terraform.io/hashicorp/aws", "change": {"actions": ["create"], "before": null,
"after": {"instance_type": "g5.xlarge", "tags": {"team": "vision"}}, "after_unknown": {}}}]}`
	smi = `timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]
2026/11/20 09:00:00.000, 0, 0 %, 3 MiB, 23028 MiB, 10.00 W
2026/11/20 09:01:00.000, 0, 0 %, 3 MiB, 23028 MiB, 10.00 W
2026/11/20 09:02:00.000, 0, 35 %, 9000 MiB, 23028 MiB, 120.00 W
`
)

// Preparations create the state at the beginning of the documents: a ledger of two days, a stored
// scan, bills, a reservation whose machine runs, a request, a blown fuse, written tags, and an
// anchor.
const (
	yesterday = `
curfew init --tags team,user --govern lifetime=ephemeral --instance-store scratch --notify "$CURFEW_HOOK_URL" --observe yes --all
mv world.yaml curfew.yaml
AGO=48h curfew gate long.yaml -o json > hold.json
`
	today = `
AGO=47h curfew scan -q
curfew scan -q -o json > scan.json
curfew scan --demo -q -o json > demo.json
curfew bill import -q examples/data/focus-2026-10.csv
curfew bill import -q this-month.csv
curfew enforce --once --enforce --policy fuse.yaml
sleep 2
curfew enforce --once --enforce --policy fuse.yaml || test $? = 4
curfew confirm | grep idle-gpu-machines
curfew gate big.yaml -o json > request.json || test $? = 3
curfew tag --kind volume --enforce -o json > tags.json
curfew checkpoint save ckpt "file://$PWD/runs/resnet50" --exited -q
curfew audit --anchor s3://my-bucket/curfew/anchor.json
`
)

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	box, err := sandbox.Start(ctx, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() })
	truth, err := box.Seed(ctx)
	if err != nil {
		t.Fatal(err)
	}
	machines, err := box.SeedLadder(ctx, "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	box.Wire.State.AddProducts(wire.Machine("g5.xlarge", "us-east-1", "1.006"),
		wire.Machine("g5.xlarge", "eu-west-1", "1.123"))
	box.Wire.State.AddSpotPrices(wire.SpotPrice{
		Region: "us-east-1", InstanceType: "g5.xlarge", Zone: "us-east-1a", Product: "Linux/UNIX", Price: "0.436",
		Time: time.Now().Add(time.Hour),
	})
	prometheus := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"status": "success", "data": {"resultType": "vector", "result": []}}`)
	}))
	t.Cleanup(prometheus.Close)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(hook.Close)

	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: filepath.Join(t.TempDir(), "world"), pull: github.New(t)}
	tools := t.TempDir()
	for _, err := range []error{
		os.Mkdir(w.dir, 0o755), os.Symlink(filepath.Join(root, "examples"), filepath.Join(w.dir, "examples")),
		os.Symlink(self, filepath.Join(tools, "curfew")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, prints := range map[string]string{"kubectl": nodes, "terraform": plan, "nvidia-smi": smi} {
		write(t, filepath.Join(tools, name), "#!/bin/sh\ncat <<'END'\n"+prints+"\nEND\n", 0o755)
	}
	bill := read(t, filepath.Join(w.dir, "examples/data/focus-2026-10.csv"))
	gpus := read(t, filepath.Join(w.dir, "examples/data/gpus.csv.gz"))
	for name, text := range map[string]string{
		"world.yaml": fmt.Sprintf(configuration, w.pull.URL),
		"today.csv":  "gpu,profile,start,workload\n0,3g.40gb,4,train\n",
		"fuse.yaml":  fuse, "train.yaml": pod, "first.yaml": firstPolicy(t, root),
		"job.yaml": fmt.Sprintf(job, "small", "9h"), "long.yaml": strings.Replace(fmt.Sprintf(job, "long", "60h"),
			"project: ranking, user: ana",
			`project: detector, user: ana, environment: research, cost_center: "4711"`, 1),
		"big.yaml": fmt.Sprintf(job, "big", "390h"), "plan.out": "", "nodes.json": nodes,
		"Makefile": string(read(t, filepath.Join(root, "Makefile"))),
		"gpus.csv.gz": zip(
			[]byte(strings.ReplaceAll(rowsOf("train-a", unzip(t, gpus)), "train-a,", machines.IDs[sandbox.Busy]+","))),
		"gpus.csv": smi, "g.csv": smi, "fleet.csv": rowsOf("train-a", unzip(t, gpus)),
		"focus-2026-10.csv.gz": zip(bill), "focus-2026-11.csv.gz": zip([]byte(monthly(t, bill, time.Now().UTC()))),
		"this-month.csv": monthly(t, bill, time.Now().UTC()), "exports/focus.csv": string(bill),
		"tokens.csv": daily(), "runs.csv": "name,finished,work\nsmall,2026-10-01,8h30m\n", "counts.csv": daily(),
		"predictions.csv": daily(),
		"shares.csv":      "resource,workload,share\n" + machines.IDs[sandbox.Busy] + ",train,3/8\n",
		"prices.csv": priceHeader +
			"aws,compute,g5.xlarge,us-east-1,on-demand,,1.004,hour,,,finance,2026-11-20\n",
		"catalog.csv":     priceHeader + "aws,compute,g6.xlarge,us-east-1,on-demand,,0.81,hour,,,finance,2026-11-20\n",
		"ckpt/12/weights": "content", "ckpt/12/DONE": "",
		"shared.yaml": "approvers: {ana: [admin], bo: [approver]}\napprovals: {accept: [self-declared]}\nbudgets:\n  - " +
			"{id: vision, team: vision, purpose: training, amount: 20000}\n",
	} {
		write(t, filepath.Join(w.dir, name), text, 0o644)
	}
	store := s3.NewFromConfig(box.Config("us-east-1"), func(o *s3.Options) { o.UsePathStyle = true })
	for bucket, key := range map[string]string{
		"finops": "focus/focus.csv", "finops-exports": "focus/daily/focus.csv", "my-bucket": "readme",
	} {
		if _, err := store.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutObject(ctx, &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String(key), Body: bytes.NewReader(bill),
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range box.Env() { // for commands that run within the test
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	w.env = append(box.Env(), "USER=ana", "CURFEW_HOOK_URL="+hook.URL, "CURFEW_HOOK_SECRET=sandbox", "BUILD_ID=7",
		"CI_PIPELINE_ID=7", "TZ=UTC",
		"PATH="+tools+":"+os.Getenv("PATH"))
	write(t, filepath.Join(w.dir, "event.json"), w.pull.Event(t, strings.Repeat("b", 40)), 0o644)
	w.prepare(t, yesterday)
	w.known = map[string]string{
		"machine": machines.IDs[sandbox.Idle], "busy": machines.IDs[sandbox.Busy],
		"soon": time.Now().Add(72 * time.Hour).UTC().Format(time.RFC3339),
		"role": truth.OtherRole, "prometheus": prometheus.URL}
	w.learn(t, "hold.json", "hold", `"hold_id": "(\w+)"`)
	if _, err := ec2.NewFromConfig(box.Config("us-east-1")).CreateTags(ctx,
		&ec2.CreateTagsInput{Resources: []string{w.known["busy"]},
			Tags: []ec2types.Tag{{Key: aws.String("curfew:hold"), Value: aws.String(w.known["hold"])}}}); err != nil {
		t.Fatal(err)
	}
	w.prepare(t, today)
	w.learn(t, "request.json", "request", `"approval_id": "(\w+)"`)
	w.learn(t, "tags.json", "item", `"item": "(\w+)"`)
	w.learn(t, "demo.json", "demo finding", `"id": "(9c6e\w+)"`)
	w.learn(t, "scan.json", "finding", `"id": "(\w+)",\s+"rule": "bucket-multipart"`)
	return w
}

func (w *world) prepare(t *testing.T, script string) {
	t.Helper()
	if said, code := w.run(t, w.dir, "ana", "set -eE; trap 'echo \"$BASH_COMMAND\"' ERR\n"+script); code != 0 {
		t.Fatalf("prepare the state: exit %d\n%s", code, said)
	}
}

// learn finds the real id for a documented example in a file.
func (w *world) learn(t *testing.T, file, name, is string) {
	t.Helper()
	m := regexp.MustCompile(is).FindSubmatch(read(t, filepath.Join(w.dir, file)))
	if m == nil {
		t.Fatalf("%s has no %s", file, name)
	}
	w.known[name] = string(m[1])
}

// simple matches a line that needs no shell; curfew then runs within the test, which saves its
// start.
var (
	simple = regexp.MustCompile(`^curfew ((?:[\w./:,=@%+-]+|"[^"$\x60\\]*"|\s)+)$`)
	word   = regexp.MustCompile(`"[^"]*"|\S+`)
)

// answers are the answers to the questions of init.
const answers = "\n\n\n#ml-cost\n\n"

// run runs a command line in a directory and returns its output and exit code.
func (w *world) run(t *testing.T, dir, who, line string) (said string, code int) {
	t.Helper()
	env := append([]string{
		"HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, ".witness"),
		"CURFEW_DATA_DIR=" + filepath.Join(dir, "data"),
		"CURFEW_IDENTITY=" + who,
	}, w.env...)
	if strings.Contains(line, "--github") {
		env = append(env, w.pull.Env(filepath.Join(dir, "event.json"))...)
	}
	if m := simple.FindStringSubmatch(line); m != nil {
		var out bytes.Buffer
		p := cli.System("test")
		p.Args, p.Stdin, p.Stdout, p.Stderr, p.Dir, p.ConfigDir = nil, strings.NewReader(answers), &out, &out, dir, dir
		p.WitnessDir = filepath.Join(dir, ".witness", "curfew", "witness") // as for the commands of the shell
		for _, w := range word.FindAllString(m[1], -1) {
			p.Args = append(p.Args, strings.Trim(w, `"`))
		}
		p.Lookup = func(name string) (string, bool) {
			for _, e := range slices.Backward(env) {
				if is, found := strings.CutPrefix(e, name+"="); found {
					return is, true
				}
			}
			return "", false
		}
		code := cli.Run(t.Context(), p)
		return out.String(), code
	}
	c := exec.CommandContext(t.Context(), "bash", "--norc", "-c", line)
	c.Dir = dir
	c.Stdin, c.Env = strings.NewReader(answers), env
	out, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// copied returns a copy of the world's files and state.
func (w *world) copied(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "world")
	run(t, ".", "cp", "-R", w.dir, dir)
	return dir
}

// firstPolicy returns the policy of getting-started.
func firstPolicy(t *testing.T, root string) string {
	for _, b := range blocks(string(read(t, filepath.Join(root, "docs", "getting-started.md")))) {
		if b.kind == "yaml" {
			return b.text
		}
	}
	t.Fatal("getting-started.md has no policy")
	return ""
}

// monthly converts the bill of October to one of this month, without the days that this month does
// not have.
func monthly(t *testing.T, bill []byte, now time.Time) string {
	t.Helper()
	october := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	next := first.AddDate(0, 1, 0)
	moved := func(date string) time.Time {
		day, err := time.Parse(time.DateOnly, date)
		if err != nil {
			t.Fatal(err)
		}
		return first.Add(day.Sub(october))
	}
	// The dates of a row are the period of the bill, then that of the charge.
	dates := regexp.MustCompile(`2026-1[01]-\d\d`)
	var b strings.Builder
	for line := range strings.Lines(string(bill)) {
		if all := dates.FindAllString(line, 4); len(all) == 4 && !moved(all[2]).Before(next) {
			continue
		}
		b.WriteString(dates.ReplaceAllStringFunc(line, func(date string) string {
			if day := moved(date); day.Before(next) {
				return day.Format(time.DateOnly)
			}
			return next.Format(time.DateOnly)
		}))
	}
	return b.String()
}

func TestMonthly(t *testing.T) {
	bill := read(t, "../../examples/data/focus-2026-10.csv")
	for month, days := range map[time.Month]int{time.February: 28, time.April: 30, time.December: 31} {
		now := time.Date(2027, month, 9, 12, 0, 0, 0, time.UTC)
		seen := map[string]bool{}
		for _, date := range regexp.MustCompile(`20\d\d-\d\d-\d\d`).FindAllString(monthly(t, bill, now), -1) {
			day, err := time.Parse(time.DateOnly, date)
			if err != nil || day.Month() != month && day.AddDate(0, 0, -1).Month() != month {
				t.Fatalf("%s has the day %s: %v", month, date, err)
			}
			seen[date] = true
		}
		if len(seen) != days+1 {
			t.Errorf("%s has %d days and the end of the last", month, len(seen)-1)
		}
	}
}

// daily counts the units of each day of October 2026 and of the last ten weeks.
func daily() string {
	october := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	days := map[string]bool{}
	for i := range 31 {
		days[october.AddDate(0, 0, i).Format(time.DateOnly)] = true
	}
	for i := range 70 {
		days[time.Now().UTC().AddDate(0, 0, -i).Format(time.DateOnly)] = true
	}
	var b strings.Builder
	b.WriteString("time,count\n")
	for _, day := range slices.Sorted(maps.Keys(days)) {
		b.WriteString(day + ",1000000\n")
	}
	return b.String()
}

// rowsOf are the rows of a recording about one resource.
func rowsOf(resource, recording string) string {
	var b strings.Builder
	for line := range strings.Lines(recording) {
		if b.Len() == 0 || strings.HasPrefix(line, resource+",") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func zip(text []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // neither fails on a buffer
	_ = w.Close()
	return b.String()
}

func unzip(t *testing.T, b []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
