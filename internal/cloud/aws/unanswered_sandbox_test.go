package aws_test

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/wire"
)

// ways are the ways in which a call can fail to respond.
var ways = []struct {
	name string
	kind wire.FaultKind
}{
	{"denied", wire.AccessDenied}, {"reset", wire.Reset}, {"server error", wire.ServerError},
	{"not found", wire.NotFound},
	{"not offered", wire.NotOffered}, {"truncated", wire.Truncated}, {"garbled", wire.Garbled}, {"empty", wire.Empty},
	{"login page", wire.LoginPage}, {"second page", wire.SecondPage}, {"never", wire.Never},
}

// essential are the calls that fail the whole observation.
var essential = []string{"sts:GetCallerIdentity"}

// answered are the failures that are compensated, with the reason.
var answered = map[string]string{
	"s3:HeadBucket/truncated": "the answer has no body",
	"s3:HeadBucket/garbled":   "the answer has no body",
	"s3:GetBucketLifecycleConfiguration/second page": "it has no pages, and its document is kept with what it does not " +
		"know",
	"s3:GetObjectLockConfiguration/truncated": "the first half says that there is none; a setting is in " +
		"TestProtectionOfBuckets",
	"s3:GetObjectLockConfiguration/garbled": "as truncated",
	"s3:GetBucketReplication/truncated": "the first half says that there is none; a setting is in " +
		"TestProtectionOfBuckets",
	"s3:GetBucketReplication/garbled": "as truncated",
	"s3:ListParts/second page":        "one page is read; the size of an upload with more is unknown",
}

// readCalls returns the calls of an audit that may fail individually.
func readCalls() []aws.Operation {
	var out []aws.Operation
	for _, op := range aws.Operations {
		if op.Scan && !slices.Contains(essential, op.API()) {
			out = append(out, op)
		}
	}
	return out
}

// everyField lets values be compared with the fields that are not exported.
func everyField(reflect.Type) bool { return true }

// names reports whether a blind spot is about a call.
func names(b inventory.BlindSpot, op *aws.Operation) bool {
	if !strings.HasPrefix(b.What, op.Service+" ") || b.Effect == "" {
		return false
	}
	for _, name := range append(op.IAM(), op.API()) {
		if strings.Contains(b.Why, name) {
			return true
		}
	}
	return false
}

// missing returns the kinds of resources that differ from the complete observation.
func missing(whole, got *round.Observation) []inventory.Kind {
	kinds := map[inventory.Kind]bool{}
	want, have := without(whole), without(got)
	for ref, r := range want {
		if !cmp.Equal(r, have[ref], cmp.Exporter(everyField)) {
			kinds[r.Kind] = true
		}
	}
	for ref, r := range have {
		if want[ref] == nil {
			kinds[r.Kind] = true
		}
	}
	for ref, w := range whole.Windows {
		if !cmp.Equal(w, got.Windows[ref], cmp.Exporter(everyField)) {
			kinds[ref.Kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// everyDay reports whether a failure is part of everyday tests: a quarter of the calls in one way
// each, and calls with past defects.
func everyDay(i, j int, op *aws.Operation) bool {
	if ways[j].kind == wire.Never {
		return op.API() == "cloudwatch:GetMetricData" || op.API() == "ec2:DescribeSnapshots"
	}
	return i%4 == 0 && i/4%(len(ways)-1) == j
}

// TestReportsEveryUnansweredCall lets each call of an audit fail in every way, and compares the
// missing facts with the reported ones. make test-slow SUITE=unanswered tries all of them.
func TestReportsEveryUnansweredCall(t *testing.T) {
	all := os.Getenv("CURFEW_SLOW") != ""
	o := options()
	o.AttemptTimeout = 2 * time.Second
	whole := mustObserve(t, o)
	for i, op := range readCalls() {
		for j, way := range ways {
			if !all && !everyDay(i, j, &op) {
				continue
			}
			t.Run(op.API()+"/"+way.name, func(t *testing.T) {
				account.Wire.Recorder.Reset()
				remove := account.Wire.Inject(wire.Fault{Service: op.Service, Operation: op.Name, Kind: way.kind})
				defer remove()
				got := mustObserve(t, o)
				lacks := missing(whole, got)
				named := slices.ContainsFunc(got.BlindSpots, func(b inventory.BlindSpot) bool { return names(b, &op) })
				unpaged := way.kind == wire.SecondPage &&
					account.Wire.Recorder.Count(op.API()) == made(whole, op.API())
				switch {
				case unpaged && len(lacks) == 0:
					return // it has no second page
				case answered[op.API()+"/"+way.name] != "":
					return
				case !named:
					t.Errorf("nothing names %s; missing are %v, blind spots %+v", op.API(), lacks, got.BlindSpots)
				}
				for _, kind := range op.Kinds {
					listed := slices.ContainsFunc(whole.Resources, func(r *inventory.Resource) bool {
						return r.Kind == kind
					})
					if listed && slices.Contains(lacks, kind) && !unread(got, kind) {
						t.Errorf("resources of kind %s are missing, and its list counts as read", kind)
					}
				}
			})
		}
	}
}

// made returns the number of calls to an API in an observation.
func made(o *round.Observation, api string) int {
	for _, c := range o.Calls {
		if c.API == api {
			return c.Count
		}
	}
	return 0
}

// unread reports whether a kind could not be listed in some place.
func unread(o *round.Observation, kind inventory.Kind) bool {
	for key, yes := range o.Unread {
		if yes && strings.HasSuffix(key, "/"+string(kind)) {
			return true
		}
	}
	return false
}
