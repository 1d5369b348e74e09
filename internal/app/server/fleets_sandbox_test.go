package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// vllmServer answers as a Prometheus server that scrapes replicas of vLLM with some requests in flight.
// Replica 0 has none of them.
func vllmServer(t *testing.T, hosts func() []string, inFlight *atomic.Int64) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		query, now := r.Form.Get("query"), time.Now().Unix()
		names := hosts()
		one := func(v any) string { return fmt.Sprintf(`{"metric":{},"value":[%d,"%v"]}`, now, v) }
		var out string
		switch {
		case strings.Contains(query, "max_over_time"):
		case strings.Contains(query, "by (instance) (vllm:num_requests_waiting"):
			var each []string
			for i, host := range names {
				each = append(each, fmt.Sprintf(`{"metric":{"instance":"%s:8000"},"value":[%d,"%d"]}`, host, now, min(i, 1)))
			}
			out = strings.Join(each, ",")
		case strings.HasPrefix(query, "count("):
			out = one(len(names))
		case strings.HasPrefix(query, "min(timestamp"):
			out = one(now)
		case strings.Contains(query, "num_requests_running"):
			out = one(inFlight.Load())
		case strings.Contains(query, "num_requests_waiting"):
			out = one(0)
		case strings.Contains(query, "request_success"):
			out = one(float64(inFlight.Load()) / 5)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, out)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// embedGroup makes the Auto Scaling group embed with two machines.
func embedGroup(t *testing.T, b *sandbox.Sandbox) (api *autoscaling.Client, name *string, must func(error)) {
	t.Helper()
	api, name = autoscaling.NewFromConfig(b.Config("us-east-1")), awssdk.String("embed")
	must = func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := api.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: name, ImageId: awssdk.String("ami-0000000000000base"),
		InstanceType: awssdk.String("c5.xlarge"),
	})
	must(err)
	_, err = api.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: name, LaunchConfigurationName: name, MinSize: awssdk.Int32(0), MaxSize: awssdk.Int32(20),
		DesiredCapacity: awssdk.Int32(2), AvailabilityZones: []string{"us-east-1a"},
	})
	must(err)
	return api, name, must
}

// TestFleetFollowsDemand lets the service grow an Auto Scaling group, and end a drained machine of it.
func TestFleetFollowsDemand(t *testing.T) {
	b := box(t)
	api, name, must := embedGroup(t, b)
	members := func() (ids []string) {
		out, err := api.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{*name},
		})
		must(err)
		for _, i := range out.AutoScalingGroups[0].Instances {
			ids = append(ids, *i.InstanceId)
		}
		return ids
	}
	var inFlight atomic.Int64
	inFlight.Store(150)
	dir := t.TempDir()
	must(os.Chmod(dir, 0o700))
	policies := filepath.Join(dir, "fleet.yaml")
	must(os.WriteFile(policies, []byte(`apiVersion: curfew.policy/v1
policies:
  - name: embed-fleet
    mode: enforce
    then: [{do: scale, fleet: asg/embed, min: 1, max: 4, disks: {instance_store: scratch, root: scratch}}]
`), 0o600))
	r := serveAs(t, b, fmt.Sprintf(`aws: {requests_per_second: 10000}
serve: {interval: 1h, skip_audits: true}
policies: [%s]
fleets:
  - id: asg/embed
    profile: a=48ms,b=1.74s
    max_running: 48
    late_after: 4s
    add_time: 1m
    stabilization: 20s
    demand: [{url: %q, server: vllm, select: 'job="embed"'}]
`, policies, vllmServer(t, members, &inFlight)), true)
	r.until("the group has its maximum", func() (bool, string) { n := len(members()); return n == 4, fmt.Sprint(n) })
	before := members()
	inFlight.Store(1)
	r.until("the drained machine has ended", func() (bool, string) {
		now := members()
		return len(now) < 4, fmt.Sprint(now)
	})
	for _, id := range members() {
		if id == before[0] {
			t.Errorf("%s was drained and goes on; %v were", id, before)
		}
	}
	r.until("both changes are confirmed in the audit log", func() (bool, string) {
		got := r.events(action.EventConfirmed)
		return len(got) >= 2 && strings.Contains(got[0], "from 2 to 4") && strings.Contains(got[1], "from 4 to 3"),
			strings.Join(got, "\n")
	})
}

// TestFleetStaysWithinBudgets lets the gate deny machines that a budget has no room for.
func TestFleetStaysWithinBudgets(t *testing.T) {
	b := box(t)
	api, name, must := embedGroup(t, b)
	var inFlight atomic.Int64
	inFlight.Store(150)
	dir := t.TempDir()
	must(os.Chmod(dir, 0o700))
	policies := filepath.Join(dir, "fleet.yaml")
	must(os.WriteFile(policies, []byte(`apiVersion: curfew.policy/v1
policies:
  - {name: embed-fleet, mode: enforce, then: [{do: scale, fleet: asg/embed, min: 1, max: 4}]}
`), 0o600))
	hosts := func() []string { return []string{"10.0.0.1", "10.0.0.2"} }
	r := serveAs(t, b, fmt.Sprintf(`aws: {requests_per_second: 10000}
serve: {interval: 1h, skip_audits: true}
policies: [%s]
budgets: [{id: inference, purpose: any, amount: 0.10}]
fleets:
  - id: asg/embed
    profile: a=48ms,b=1.74s
    max_running: 48
    late_after: 4s
    demand: [{url: %q, server: vllm, select: 'job="embed"'}]
`, policies, vllmServer(t, hosts, &inFlight)), true)
	r.until("the growth is refused by the budget", func() (bool, string) {
		got := r.outcomes(action.EventRefused)
		all := strings.Join(got, "\n")
		refused := strings.Contains(all, "from 2 to 4: budget: ") && strings.Contains(all, "inference")
		return len(got) == 1 && refused, all
	})
	out, err := api.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{*name},
	})
	must(err)
	if n := *out.AutoScalingGroups[0].DesiredCapacity; n != 2 {
		t.Errorf("the size is %d", n)
	}
}

// outcomes are the outcomes of events of the audit log.
func (r *running) outcomes(what string) []string {
	r.t.Helper()
	var out []string
	if err := govern.Entries(r.t.Context(), r.req.Fresh(), action.Query{What: what}, func(e view.AuditEntry) error {
		out = append(out, e.Outcome)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}
