package aws

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestOnlyLaunchersLaunch checks that no client that reads or acts can start machines.
func TestOnlyLaunchersLaunch(t *testing.T) {
	for _, c := range LaunchCalls {
		begins := func(prefixes ...string) bool {
			return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Name, p) })
		}
		reads, makes := begins("Describe", "Get", "List"), begins("Add", "Attach", "Create", "RunInstances")
		if !reads && index[c.API()] != nil {
			t.Errorf("a client that reads may call %s", c.API())
		}
		launches := c.Service == "iam" || c.Name == "RunInstances" || c.Name == "DeleteNetworkInterface"
		if launches && mutable()[c.API()] {
			t.Errorf("a client that acts on accounts may call %s", c.API())
		}
		if !reads && !makes && (c.Harm != Destroys || !c.Tagged) {
			t.Errorf("%s is said to harm nothing", c.API())
		}
	}
}

// TestLaunchCallsMatchPolicy checks that every call of a launcher is covered by the test of the
// roles in terraform/backbone.
func TestLaunchCallsMatchPolicy(t *testing.T) {
	for _, c := range LaunchCalls {
		if !slices.ContainsFunc(SessionCalls(), func(s SessionCall) bool {
			return s.By == ByLauncher && s.Service == c.Service && s.Name == c.Name
		}) {
			t.Errorf("%s is not among the calls of sessions", c.API())
		}
	}
}

// TestCapacityErrorsAreNotRetried checks that lack of capacity is left to the caller, who chose the pool.
func TestCapacityErrorsAreNotRetried(t *testing.T) {
	d := decided{newRetryer()}
	for c, class := range launchClasses {
		if d.IsErrorRetryable(&smithy.GenericAPIError{Code: c, Fault: smithy.FaultServer}) {
			t.Errorf("%s (%v) is tried again", c, class)
		}
	}
	if !d.IsErrorRetryable(&smithy.GenericAPIError{Code: "RequestLimitExceeded"}) {
		t.Error("throttling is not tried again")
	}
	if !errors.Is(launchClasses["VcpuLimitExceeded"], session.ErrQuota) ||
		!errors.Is(launchClasses["InsufficientInstanceCapacity"], session.ErrCapacity) {
		t.Error("a quota is taken for capacity")
	}
}

func TestClientToken(t *testing.T) {
	long := strings.Repeat("a", 65)
	tokens := []string{
		clientToken("short"), clientToken(long), clientToken(long + "b"), clientToken(strings.Repeat("a", 64)),
	}
	if tokens[0] != "short" || len(slices.Compact(slices.Sorted(slices.Values(tokens)))) != 4 {
		t.Errorf("tokens %q", tokens)
	}
	for _, token := range tokens {
		if len(token) > maxToken {
			t.Errorf("%q is too long", token)
		}
	}
}
