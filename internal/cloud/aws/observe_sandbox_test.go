package aws_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

func TestConforms(t *testing.T) {
	environ(t)
	var holds []inventory.Ref
	for _, r := range truth.Resources {
		holds = append(holds, ref(r))
	}
	cloudtest.Run(t, cloudtest.Case{
		New: func(tb testing.TB) cloudtest.Cloud {
			c, err := aws.New(tb.Context(), options())
			if err != nil {
				tb.Fatal(err)
			}
			return c
		},
		Query: query(), Tags: inventory.DefaultTagMapping(), Holds: holds, Calls: true,
		Lacks: []inventory.Ref{ref(truth.Other[0].Resource)},
	})
}

func ref(r sandbox.Resource) inventory.Ref {
	return inventory.Ref{Cloud: "aws", Account: truth.Account, Region: r.Region, Kind: r.Kind, ID: r.ID}
}

// named has the fields that both the expected and the observed resource have.
type named struct {
	Owner    inventory.Owner
	Lifetime inventory.Lifetime
	Purpose  inventory.Purpose
}

func TestObservesAllResourcesAndOwners(t *testing.T) {
	seen := mustObserve(t, options())
	got, want := map[string]inventory.Owner{}, map[string]inventory.Owner{}
	for _, r := range seen.Resources {
		got[r.Ref().String()] = r.Owner
	}
	for _, r := range truth.Resources {
		want[ref(r).String()] = r.Owner
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("truth -, seen +\n%s", diff)
	}
	machines := map[string]named{}
	for _, r := range seen.Resources {
		machines[r.ID] = named{r.Owner, r.Lifetime, r.Purpose}
	}
	for _, r := range truth.Resources {
		if r.Kind == inventory.KindInstance && machines[r.ID] != (named{r.Owner, r.Lifetime, r.Purpose}) {
			t.Errorf("%s is %+v, want %+v", r.ID, machines[r.ID], r)
		}
	}
	if len(seen.BlindSpots) != 0 || len(seen.Unread) != 0 || !seen.CommitmentsKnown {
		t.Errorf("blind spots %+v, unread %v, commitments known %v", seen.BlindSpots,
			seen.Unread, seen.CommitmentsKnown)
	}
	if seen.Billed == nil || seen.Billed.Total.Cents() != truth.BilledUSD {
		t.Errorf("billed %+v, want %s", seen.Billed, truth.BilledUSD)
	}
}

// find returns the observed resource planted for a rule.
func find(t *testing.T, o *round.Observation, rule string) (*inventory.Resource, *usage.Window) {
	t.Helper()
	want := ref(truth.Find(rule)[0].Resource)
	for _, r := range o.Resources {
		if r.Ref() == want {
			return r, o.Windows[want]
		}
	}
	t.Fatalf("%s was not seen", want)
	return nil, nil
}

func TestObservesFactsOfRules(t *testing.T) {
	o := mustObserve(t, options())
	held, w := find(t, o, "gpu-held")
	if len(w.GPUs) != 8 {
		t.Fatalf("%d GPUs of %s, want 8", len(w.GPUs), held.ID)
	}
	for _, g := range w.GPUs {
		util, memory := g.Stats(usage.GPUUtil), g.Stats(usage.MemUsed)
		if util == nil || util.Max != 0 || memory == nil || memory.Max != 37_683*(1<<20) || w.Coverage(util) < 0.99 ||
			!w.Fresh(util, truth.Now) {
			t.Errorf("GPU %s: utilization %+v, memory %+v", g.Name, util, memory)
		}
	}
	if w.From.Before(held.CreatedAt) || truth.Now.Sub(held.CreatedAt) != 6*24*time.Hour+4*time.Hour {
		t.Errorf("window from %s, launched %s", w.From, held.CreatedAt)
	}

	if _, w = find(t, o, "telemetry-missing"); len(w.GPUs) != 0 || w.Machine.Stats(usage.GPUUtil) != nil ||
		w.Machine.Stats(usage.CPUUtil) == nil {
		t.Error("the machine without an agent has GPU telemetry, or no CPU telemetry")
	}
	if _, w = find(t, o, "instance-idle"); w.Machine.Stats(usage.CPUUtil).Max != 2 ||
		w.Machine.Stats(usage.NetBytes) == nil {
		t.Errorf("idle machine: %+v", w.Machine)
	}
	if stopped, _ := find(t, o, "instance-stopped"); stopped.State != inventory.StateStopped ||
		truth.Now.Sub(stopped.StateSince) != 45*24*time.Hour ||
		len(stopped.Detail.(*inventory.Instance).Disks) != 2 {
		t.Errorf("stopped machine: %+v", stopped)
	}
	if _, w = find(t, o, "nat-gateway-idle"); w.Machine.Stats(usage.NetBytes) == nil ||
		w.Machine.Stats(usage.NetBytes).Max != 0 {
		t.Errorf("idle gateway: %+v", w)
	}
	if _, w = find(t, o, "endpoint-idle"); w.Machine.Stats(usage.Requests) != nil ||
		w.Machine.Stats(usage.CPUUtil) == nil {
		t.Errorf("idle endpoint: %+v; want CPU and no invocation", w)
	}
	if _, w = find(t, o, "reservation-unused"); w.Machine.Stats(usage.Capacity) == nil ||
		w.Machine.Stats(usage.Capacity).Max != 1 {
		t.Errorf("reservation: %+v; want 1 used", w)
	}
	if job, w := find(t, o, "training-stalled"); job.Detail.(*inventory.TrainingJob).StartedAt.IsZero() || w == nil {
		t.Errorf("training job: %+v, %+v", job, w)
	}
	bucket, _ := find(t, o, "bucket-no-lifecycle")
	b := bucket.Detail.(*inventory.Bucket)
	if sizes, _ := b.Sizes.Get(); sizes["STANDARD"] != 10<<40 {
		t.Errorf("sizes %v, want 10 TiB", sizes)
	}
	if p, _ := b.Prefixes.Get(); len(p) != 1 || p[0].Bytes != 10<<40 || p[0].OlderThan[180].Bytes != 10<<40 {
		t.Errorf("prefixes %+v", p)
	}
	multipart, _ := find(t, o, "bucket-multipart")
	if u, ok := multipart.Detail.(*inventory.Bucket).Uploads.Get(); !ok || u.Count != 3 ||
		truth.Now.Sub(u.Oldest) != 22*24*time.Hour {
		t.Errorf("uploads %+v", u)
	}
	noncurrent, _ := find(t, o, "bucket-noncurrent")
	if n, ok := noncurrent.Detail.(*inventory.Bucket).Noncurrent.Get(); !ok || n.Objects != 5 || n.Bytes != 50<<30 {
		t.Errorf("noncurrent %+v, want 5 objects of 10 GiB", n)
	}
	untagged, _ := find(t, o, "repository-untagged")
	if bytes, ok := untagged.Detail.(*inventory.Repository).UntaggedBytes.Get(); !ok || bytes != 40<<30 {
		t.Errorf("untagged %d, want 40 GiB", bytes)
	}
	for _, l := range truth.LookAlikes {
		if l.Kind != inventory.KindSnapshot || !strings.Contains(l.Note, "image") {
			continue
		}
		i := slices.IndexFunc(o.Resources, func(r *inventory.Resource) bool { return r.Ref() == ref(l.Resource) })
		if s := o.Resources[i].Detail.(*inventory.Snapshot); !s.ImagesKnown || len(s.Images) == 0 {
			t.Errorf("%s: %+v; want the image that needs it (%s)", l.ID, s, l.Note)
		}
	}
}

func TestCallsMatchReadOnlyPolicy(t *testing.T) {
	o := mustObserve(t, options())
	if m := account.Wire.Recorder.Mutating(); len(m) != 0 {
		t.Errorf("calls that change something: %+v", m)
	}
	// The policy equals the calls: each call is allowed, and each allowed call was made.
	allowed := map[string]bool{}
	for _, op := range aws.Operations {
		if op.Scan {
			allowed[op.API()] = true
		}
	}
	made := map[string]bool{}
	for _, name := range account.Wire.Recorder.Names() {
		made[name] = true
	}
	if diff := cmp.Diff(allowed, made); diff != "" {
		t.Errorf("allowed -, called +\n%s", diff)
	}
	countsWhatWasMade(t, o)
}

// countsWhatWasMade compares the reported with the recorded calls.
func countsWhatWasMade(t *testing.T, o *round.Observation) {
	t.Helper()
	for _, c := range o.Calls {
		if got := account.Wire.Recorder.Count(c.API); got != c.Count {
			t.Errorf("%s: %d calls are reported, %d were made", c.API, c.Count, got)
		}
	}
}

// without drops resources of some kinds, and facts that depend on them.
func without(o *round.Observation, kinds ...inventory.Kind) map[string]*inventory.Resource {
	out := map[string]*inventory.Resource{}
	for _, r := range o.Resources {
		if !slices.Contains(kinds, r.Kind) {
			out[r.Ref().String()] = r
		}
	}
	return out
}

func equal(t *testing.T, want, got map[string]*inventory.Resource) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("whole -, with the fault +\n%s", diff)
	}
}

// unsized drops the sizes of machines' disks.
func unsized(in map[string]*inventory.Resource) map[string]*inventory.Resource {
	out := map[string]*inventory.Resource{}
	for ref, r := range in {
		if d, ok := r.Detail.(*inventory.Instance); ok {
			own, machine := *r, *d
			machine.Disks = slices.Clone(d.Disks)
			for i := range machine.Disks {
				machine.Disks[i].SizeGiB = inventory.Fact[int64]{}
			}
			own.Detail, r = &machine, &own
		}
		out[ref] = r
	}
	return out
}

func TestDenialIsBlindSpot(t *testing.T) {
	whole := mustObserve(t, options())
	for _, x := range []struct {
		service, operation string
		kinds              []inventory.Kind
		commitments        bool
	}{
		{"rds", "", []inventory.Kind{inventory.KindDatabase}, true},
		{"fsx", "", []inventory.Kind{inventory.KindFileSystem}, true},
		{"ec2", "DescribeVolumes", []inventory.Kind{inventory.KindVolume}, true},
		{"ec2", "DescribeReservedInstances", []inventory.Kind{inventory.KindCommitment}, false},
		{"savingsplans", "", []inventory.Kind{inventory.KindCommitment}, false},
		{"s3", "ListBuckets", []inventory.Kind{inventory.KindBucket}, true},
		{"ecr", "DescribeRepositories", []inventory.Kind{inventory.KindRepository}, true},
	} {
		t.Run(x.service+":"+x.operation, func(t *testing.T) {
			remove := account.Wire.Inject(wire.Fault{
				Service: x.service, Operation: x.operation, Kind: wire.AccessDenied,
			})
			defer remove()
			o := mustObserve(t, options())
			whole, got := without(whole, x.kinds...), without(o, x.kinds...)
			if x.operation == "DescribeVolumes" {
				whole, got = unsized(whole), unsized(got) // nor the sizes of machines' disks
			}
			equal(t, whole, got)
			if o.CommitmentsKnown != x.commitments {
				t.Errorf("commitments known: %v, want %v", o.CommitmentsKnown, x.commitments)
			}
			if !slices.ContainsFunc(o.BlindSpots, func(b inventory.BlindSpot) bool {
				return strings.HasPrefix(b.What, x.service+" ") && strings.Contains(b.What, "us-east-1") &&
					strings.Contains(b.Why, x.service+":"+x.operation) && b.Effect != ""
			}) {
				t.Errorf("blind spots %+v", o.BlindSpots)
			}
			if !o.Unread[truth.Account+"/us-east-1/"+string(x.kinds[0])] {
				t.Errorf("unread %v, want %s", o.Unread, x.kinds[0])
			}
		})
	}
}

func TestDeniedMetricsLeaveDutyUnknown(t *testing.T) {
	whole := mustObserve(t, options())
	defer account.Wire.Inject(wire.Fault{
		Service: "cloudwatch", Operation: "GetMetricData", Region: "us-west-2", Kind: wire.AccessDenied,
	})()
	o := mustObserve(t, options())
	equal(t, without(whole, inventory.KindBucket), without(o, inventory.KindBucket)) // bucket sizes are metrics
	for _, r := range o.Resources {
		w := o.Windows[r.Ref()]
		if r.Kind == inventory.KindInstance && r.Region == "us-west-2" && w != nil &&
			(len(w.GPUs) > 0 || w.Machine.Stats(usage.CPUUtil) != nil) {
			t.Errorf("%s was measured", r.ID)
		}
	}
	if len(o.BlindSpots) == 0 {
		t.Fatal("no blind spot")
	}
	for _, b := range o.BlindSpots {
		if !strings.HasPrefix(b.What, "cloudwatch us-west-2") || !strings.Contains(b.Why, "AccessDenied") {
			t.Errorf("blind spot %+v", b)
		}
	}
}

func TestOneDeniedBucketIsBlindSpot(t *testing.T) {
	defer account.Wire.Inject(wire.Fault{
		Service: "s3", Operation: "GetBucketLifecycleConfiguration", Kind: wire.AccessDenied, Times: 1,
	})()
	o := mustObserve(t, options())
	unknown := 0
	for _, r := range o.Resources {
		if b, ok := r.Detail.(*inventory.Bucket); ok && !b.Lifecycle.Known() {
			unknown++
		}
	}
	if unknown != 1 || len(o.BlindSpots) != 1 ||
		!strings.Contains(o.BlindSpots[0].Why, "s3:GetLifecycleConfiguration") {
		t.Errorf("%d buckets unknown, blind spots %+v; want 1 and one for s3:GetLifecycleConfiguration", unknown,
			o.BlindSpots)
	}
}

func TestRetriesTransientFaults(t *testing.T) {
	whole := mustObserve(t, options())
	for name, f := range map[string]wire.Fault{
		"throttled machines": {Service: "ec2", Operation: "DescribeInstances", Kind: wire.Throttling, Times: 1},
		"throttled metrics":  {Service: "cloudwatch", Operation: "GetMetricData", Kind: wire.Throttling, Times: 1},
		"a lost connection":  {Service: "ec2", Operation: "DescribeVolumes", Kind: wire.Reset, Times: 1},
		"a slow answer":      {Service: "rds", Kind: wire.Slow, Delay: 200 * time.Millisecond, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			defer account.Wire.Inject(f)()
			o := mustObserve(t, options())
			if len(o.BlindSpots) != 0 {
				t.Errorf("blind spots %+v", o.BlindSpots)
			}
			equal(t, without(whole), without(o))
			countsWhatWasMade(t, o)
		})
	}
}

func TestReportsPermanentFaults(t *testing.T) {
	for name, f := range map[string]wire.Fault{
		"an API that answers HTML": {Service: "es", Kind: wire.ServerError},
		"an API that is not there": {Service: "fsx", Kind: wire.NotOffered},
	} {
		t.Run(name, func(t *testing.T) {
			defer account.Wire.Inject(f)()
			o := mustObserve(t, options())
			if len(o.BlindSpots) == 0 || slices.ContainsFunc(o.BlindSpots, func(b inventory.BlindSpot) bool {
				return !strings.HasPrefix(b.What, f.Service+" ") || b.Why == "" || strings.ContainsAny(b.Why, "\n<")
			}) {
				t.Errorf("blind spots %+v", o.BlindSpots)
			}
		})
	}
}

func TestNothingCanBeReadOfTheSandbox(t *testing.T) {
	for _, x := range []struct {
		name  string
		fault wire.Fault
		want  error
	}{
		{"expired", wire.Fault{Service: "sts", Kind: wire.ExpiredToken}, inventory.ErrUnauthenticated},
		{"denied", wire.Fault{Service: "sts", Kind: wire.AccessDenied}, inventory.ErrDenied},
		{"no service", wire.Fault{Service: "sts", Kind: wire.ServerError}, inventory.ErrUnavailable},
	} {
		t.Run(x.name, func(t *testing.T) {
			defer account.Wire.Inject(x.fault)()
			if _, err := observe(t, options()); !errors.Is(err, x.want) || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("%v, want %v in one line", err, x.want)
			}
		})
	}
	t.Run("no server listens", func(t *testing.T) {
		environ(t)
		t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
		c, err := aws.New(t.Context(), options())
		if err == nil {
			_, err = cloudtest.Observe(t.Context(), c, query())
		}
		if !errors.Is(err, inventory.ErrUnavailable) {
			t.Errorf("%v, want %v", err, inventory.ErrUnavailable)
		}
	})
	t.Run("no such region", func(t *testing.T) {
		o := options()
		o.Regions = []string{"us-east-9"}
		_, err := observe(t, o)
		var unknown *aws.RegionError
		if !errors.As(err, &unknown) || unknown.Region != "us-east-9" {
			t.Errorf("%v, want a RegionError", err)
		}
	})
}

func TestReportsCredentialsExpiringDuringScan(t *testing.T) {
	defer account.Wire.Inject(wire.Fault{Service: "ec2", Operation: "DescribeVolumes", Kind: wire.ExpiredToken})()
	o, err := observe(t, options())
	if err != nil {
		if !errors.Is(err, inventory.ErrUnauthenticated) {
			t.Errorf("%v, want %v", err, inventory.ErrUnauthenticated)
		}
		return
	}
	if !slices.ContainsFunc(o.BlindSpots, func(b inventory.BlindSpot) bool {
		return strings.Contains(b.Why, "RequestExpired")
	}) {
		t.Errorf("blind spots %+v", o.BlindSpots)
	}
}

// externalIDs counts the roles assumed with the test's external ID.
type externalIDs struct{ count atomic.Int32 }

func (e *externalIDs) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(strings.NewReader(string(raw)))
		if text := string(raw); strings.Contains(text, "Action=AssumeRole") &&
			strings.Contains(text, "ExternalId=id-of-the-trust") {
			e.count.Add(1)
		}
	}
	return http.DefaultClient.Do(r)
}

func TestTwoAccounts(t *testing.T) {
	o := options()
	o.AssumeRoles = []string{truth.OtherRole}
	o.ExternalID = "id-of-the-trust"
	t.Setenv("AWS_CA_BUNDLE", "") // the SDK applies it only to its own clients
	var named externalIDs
	o.HTTP = &named
	seen := mustObserve(t, o)
	if n := named.count.Load(); n == 0 {
		t.Error("no role was assumed with the external id")
	}
	if called := account.Wire.Recorder.Curfews(); !slices.Contains(called, "ec2:DescribeInstances") ||
		slices.Contains(called, "ec2:RunInstances") {
		t.Errorf("curfew called %q; the test itself called ec2:RunInstances", called)
	}
	if !slices.Equal(seen.Accounts, []string{truth.Account, truth.OtherAccount}) {
		t.Errorf("accounts %q", seen.Accounts)
	}
	for _, p := range truth.Other {
		if !slices.ContainsFunc(seen.Resources, func(r *inventory.Resource) bool {
			return r.Account == truth.OtherAccount && r.Kind == p.Kind && r.ID == p.ID && r.Owner == p.Owner
		}) {
			t.Errorf("%s %s of the other account was not seen", p.Kind, p.ID)
		}
	}
	if m := account.Wire.Recorder.Mutating(); len(m) != 0 {
		t.Errorf("calls that change something: %+v", m)
	}
	if len(seen.BlindSpots) != 0 {
		t.Errorf("blind spots %+v", seen.BlindSpots)
	}
}

func TestAllRegions(t *testing.T) {
	o := options()
	o.Regions = []string{"all"}
	seen := mustObserve(t, o)
	for _, r := range truth.Regions {
		if !slices.Contains(seen.Regions, r) {
			t.Errorf("%s was not read", r)
		}
	}
	if got, want := len(seen.Resources), len(truth.Resources); got != want || len(seen.BlindSpots) != 0 {
		t.Errorf("%d resources with blind spots %+v, want %d with none", got, seen.BlindSpots, want)
	}
}

// TestOnlyKindsThatAreAsked observes a few kinds and checks that only the needed calls are made.
func TestReadsOnlyRequestedKinds(t *testing.T) {
	environ(t)
	c, err := aws.New(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	account.Wire.Recorder.Reset()
	q := query()
	q.Kinds = map[inventory.Kind]bool{inventory.KindSnapshot: true, inventory.KindAddress: true}
	o, err := cloudtest.Observe(t.Context(), c, q)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[inventory.Kind]bool{}
	for _, r := range o.Resources {
		seen[r.Kind] = true
		if d, ok := r.Detail.(*inventory.Snapshot); ok && !d.ImagesKnown {
			t.Errorf("which images need %s is not known", r.ID)
		}
	}
	if !maps.Equal(seen, q.Kinds) || o.CommitmentsKnown || len(o.BlindSpots) > 0 {
		t.Errorf("kinds %v, commitments are known: %v, blind spots %+v", seen, o.CommitmentsKnown, o.BlindSpots)
	}
	for _, name := range []string{
		"ec2:DescribeInstances", "s3:ListBuckets", "ce:GetCostAndUsage", "savingsplans:DescribeSavingsPlans",
		"logs:DescribeLogGroups",
	} {
		if n := account.Wire.Recorder.Count(name); n > 0 {
			t.Errorf("%d calls of %s for nothing", n, name)
		}
	}
}
