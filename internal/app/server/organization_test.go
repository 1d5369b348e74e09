package server

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	"github.com/aws/aws-sdk-go-v2/service/organizations/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/prometheus"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestServeRecordsItsAccounts checks that a backtest from Prometheus or CloudWatch records the
// machines of every account that the service reads, including members of an organization, and names
// the unreadable accounts.
func TestServeRecordsItsAccounts(t *testing.T) {
	prometheus.Need(t, "prometheus", "prometheus", "promtool")
	b := box(t)
	org := organizations.NewFromConfig(b.Config("us-east-1"))
	if _, err := org.CreateOrganization(t.Context(), &organizations.CreateOrganizationInput{
		FeatureSet: types.OrganizationFeatureSetAll,
	}); err != nil {
		t.Fatal(err)
	}
	member := func(n int) string {
		t.Helper()
		out, err := org.CreateAccount(t.Context(), &organizations.CreateAccountInput{
			AccountName: awssdk.String(fmt.Sprint("team-", n)),
			Email:       awssdk.String(fmt.Sprintf("team-%d@example.com", n)),
			RoleName:    awssdk.String("curfew-read"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return *out.CreateAccountStatus.AccountId
	}
	good, bad := member(1), member(2)
	now := time.Now().UTC().Truncate(time.Minute)
	const hours = 4
	var history []prometheus.Series
	// launch creates a machine in an account with a history in Prometheus and CloudWatch.
	launch := func(account string, util float64) {
		t.Helper()
		cfg := b.Config("us-east-1")
		if account != wire.DefaultAccount {
			cfg.Credentials = awssdk.NewCredentialsCache(
				stscreds.NewAssumeRoleProvider(sts.NewFromConfig(b.Config("us-east-1")),
					"arn:aws:iam::"+account+":role/curfew-read"))
		}
		out, err := ec2.NewFromConfig(cfg).RunInstances(t.Context(), &ec2.RunInstancesInput{
			ImageId: awssdk.String("ami-0000000000000base"), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1),
			InstanceType: ec2types.InstanceTypeG5gXlarge,
		})
		if err != nil {
			t.Fatal(err)
		}
		id := *out.Instances[0].InstanceId
		b.Wire.Patch(wire.Patch{
			Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId", ID: id,
			Set: map[string]any{
				"launchTime": now.Add(-8 * time.Hour),
			}, Add: map[string]any{"platformDetails": "Linux/UNIX", "usageOperation": "RunInstances"}})
		s := prometheus.Series{
			Name: "DCGM_FI_DEV_GPU_UTIL", Labels: fmt.Sprintf(`gpu="0",UUID="GPU-%s",node="%s"`, id, id),
		}
		for i := range hours * 60 {
			at := now.Add(time.Duration(i-hours*60) * time.Minute)
			s.Points = append(s.Points, prometheus.Point{At: at, V: util})
			card := []wire.Dimension{
				{Name: "InstanceId", Value: id}, {Name: "index", Value: "0"}, {Name: "name", Value: "NVIDIA T4G"},
			}
			b.Wire.Metrics.Put(account, "us-east-1", "CWAgent", "nvidia_smi_utilization_gpu", card,
				wire.Datum{Time: at, Sum: util, Min: util, Max: util, Count: 1})
		}
		history = append(history, s)
	}
	launch(wire.DefaultAccount, 0)
	launch(good, 90)
	server := prometheus.Start(t, history, "")
	t.Cleanup(b.Wire.Inject(wire.Fault{Account: bad, Kind: wire.AccessDenied}))
	r := serve(t, b, "aws: {requests_per_second: 10000, regions: [us-east-1], organization: {role: curfew-read, "+
		"refresh: 1m}}\nmetrics: {sources: [{url: "+server+
		"}]}\nserve: {interval: 1m, skip_audits: true}\nidentity: root\n")
	for _, from := range []string{replay.FromPrometheus, replay.FromCloud} {
		t.Run(from, func(t *testing.T) {
			doc, err := replay.CreateBacktest(t.Context(), r.req.Fresh(), view.BacktestAsked{
				From: from, Since: "3h", Step: "1m", RestartCost: "5m", Baselines: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			id := doc.Backtests[0].ID
			var job view.BacktestJob
			r.until("it is done", func() (bool, string) {
				doc, err := replay.Backtest(t.Context(), r.req.Fresh(), id)
				if err != nil {
					t.Fatal(err)
				}
				job = doc.Backtests[0]
				return job.State == "done" || job.State == "failed", fmt.Sprintf("%+v", job)
			})
			if job.State != "done" || !strings.Contains(job.Note, "not visible") || !strings.Contains(job.Note, bad) {
				t.Errorf("%+v", job)
			}
			raw, err := replay.BacktestResult(t.Context(), r.req.Fresh(), id)
			var result struct {
				Trace   struct{ Resources int }
				Results []struct {
					Name     string
					Released float64 `json:"released_hours"`
					Hours    float64 `json:"resource_hours"`
				}
			}
			if err == nil {
				err = json.Unmarshal(raw, &result)
			}
			if err != nil || result.Trace.Resources != 2 {
				t.Fatalf("%+v, %v: %.800s", result, err, raw)
			}
			for _, one := range result.Results {
				// Of two machines with equal hours, the idle one is released after 5 minutes.
				if one.Name == "fixed-5m" &&
					(one.Hours < 5.9 || one.Hours > 8.1 || math.Abs(one.Released-(one.Hours/2-5.0/60)) > 0.1) {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}
