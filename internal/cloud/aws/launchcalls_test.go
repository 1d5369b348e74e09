package aws

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/curfew-dev/curfew/internal/session"
)

// TestOnlyLaunchersLaunch: no client that reads or acts can start machines.
func TestOnlyLaunchersLaunch(t *testing.T) {
	for _, c := range LaunchCalls {
		reads := strings.HasPrefix(c.Name, "Describe") || strings.HasPrefix(c.Name, "Get")
		if !reads && index[c.API()] != nil {
			t.Errorf("a client that reads may call %s", c.API())
		}
		if (c.Name == "RunInstances" || c.Name == "DeleteNetworkInterface") && mutable[c.API()] {
			t.Errorf("a client that acts on accounts may call %s", c.API())
		}
		if !reads && c.Name != "RunInstances" && (c.Harm != Destroys || !c.Tagged) {
			t.Errorf("%s is said to harm nothing", c.API())
		}
	}
}

// TestClassesAreNotRetried: what says that a pool has no machine is for whoever chose it.
func TestClassesAreNotRetried(t *testing.T) {
	d := decided{newRetryer()}
	for c, class := range launchClasses {
		if d.IsErrorRetryable(&smithy.GenericAPIError{Code: c, Fault: smithy.FaultServer}) {
			t.Errorf("%s (%v) is tried again", c, class)
		}
	}
	if !d.IsErrorRetryable(&smithy.GenericAPIError{Code: "RequestLimitExceeded"}) {
		t.Error("throttling is not tried again")
	}
	if !errors.Is(launchClasses["VcpuLimitExceeded"], session.ErrQuota) || !errors.Is(launchClasses["InsufficientInstanceCapacity"], session.ErrCapacity) {
		t.Error("a quota is taken for capacity")
	}
}

func TestParseBackbone(t *testing.T) {
	whole := map[string]string{"version": "1", "bucket": "b", "subnets": "subnet-1=zone-a, subnet-2=zone-b", "security-group": "sg-1", "instance-profile": "arn:p"}
	b, err := parseBackbone(whole)
	if err != nil || b.Subnets["zone-b"] != "subnet-2" || len(b.Subnets) != 2 || b.Bucket != "b" || b.SecurityGroup != "sg-1" || b.InstanceProfile != "arn:p" {
		t.Errorf("%+v, %v", b, err)
	}
	for name, change := range map[string]func(map[string]string){
		"terraform/backbone": func(m map[string]string) { clear(m) },
		"version \"2\"":      func(m map[string]string) { m["version"] = "2" },
		"subnet=zone":        func(m map[string]string) { m["subnets"] = "subnet-1" },
		"security-group":     func(m map[string]string) { delete(m, "security-group") },
		"instance-profile":   func(m map[string]string) { m["instance-profile"] = "" },
		"bucket":             func(m map[string]string) { delete(m, "bucket") },
	} {
		m := maps.Clone(whole)
		change(m)
		if _, err := parseBackbone(m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClientToken(t *testing.T) {
	long := strings.Repeat("a", 65)
	tokens := []string{clientToken("short"), clientToken(long), clientToken(long + "b"), clientToken(strings.Repeat("a", 64))}
	if tokens[0] != "short" || len(slices.Compact(slices.Sorted(slices.Values(tokens)))) != 4 {
		t.Errorf("tokens %q", tokens)
	}
	for _, token := range tokens {
		if len(token) > maxToken {
			t.Errorf("%q is too long", token)
		}
	}
}
