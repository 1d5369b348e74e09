package aws

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestHostNamesOfFewMachines reads one machine again and checks that a host name shared with an
// unrequested machine identifies neither.
func TestHostNamesOfFewMachines(t *testing.T) {
	const host = "ip-10-0-0-1.ec2.internal"
	for _, tc := range []struct {
		name string
		with []string // the machines with that host name
		want string
	}{{"its own", []string{"i-1"}, "i-1"}, {"shared", []string{"i-1", "i-2"}, ""}} {
		t.Run(tc.name, func(t *testing.T) {
			machine := func(id string) string {
				return strings.ReplaceAll(machineXML("running", launched, "<privateDnsName>"+host+"</privateDnsName>"),
					"i-1", id)
			}
			endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				form, _ := url.ParseQuery(string(body))
				switch {
				case form.Get("Action") == "DescribeInstanceAttribute":
					fmt.Fprint(w,
						`<DescribeInstanceAttributeResponse><disableApiTermination><value>true</value></disableApiTermination></DescribeInstanceAttributeResponse>`)
				case form.Get("Action") == "DescribeInstanceTypes" && form.Get("Filter.1.Value.1") == "t3.medium":
					fmt.Fprint(w,
						`<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>t3.medium</instanceType></item></instanceTypeSet></DescribeInstanceTypesResponse>`)
				case form.Get("Filter.1.Name") == "instance-id" && form.Get("Filter.1.Value.1") == "i-1" &&
					!form.Has("Filter.1.Value.2"):
					fmt.Fprint(w, machine("i-1"))
				case form.Get("Filter.1.Name") == "private-dns-name" && form.Get("Filter.1.Value.1") == host:
					var all strings.Builder
					for _, id := range tc.with {
						one := machine(id)
						from, to := strings.Index(one, "<item>"), strings.LastIndex(one, "</reservationSet>")
						all.WriteString(one[from:to])
					}
					fmt.Fprint(w, "<DescribeInstancesResponse><reservationSet>"+all.String()+
						"</reservationSet></DescribeInstancesResponse>")
				default:
					t.Errorf("unexpected request %v", form)
				}
			})
			c, err := New(t.Context(), Options{RequestsPerSecond: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			s := c.scan(round.Query{}, newLimits(10_000))
			s.only = map[inventory.Ref]bool{
				{Cloud: cloudName, Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1"}: true,
				// A machine of another region and another kind are not read here.
				{Cloud: cloudName, Account: "1", Region: "eu-west-1", Kind: inventory.KindInstance, ID: "i-9"}: true,
				{Cloud: cloudName, Account: "1", Region: "us-east-1", Kind: inventory.KindVolume, ID: "vol-9"}: true}
			p := s.place(&account{id: "1", cfg: c.config}, "us-east-1")
			p.instancesAgain(t.Context())
			if p.hosts[host] != tc.want {
				t.Errorf("%s is %q, want %q", host, p.hosts[host], tc.want)
			}
			if len(s.resources) != 1 || !s.resources[0].Detail.(*inventory.Instance).TerminationProtected.Or(false) {
				t.Errorf("read %+v, want the one machine, protected", s.resources)
			}
			if n, known := s.resources[0].Size.GPUs.Get(); !known || n != 0 {
				t.Errorf("a type without accelerators in its description has %d, known %v", n, known)
			}
		})
	}
}

// TestRecheckOfOtherCloud checks that it is an error, not an absence.
func TestRecheckOfOtherCloud(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, identityXML) })
	c, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{
		{Cloud: "sim", Account: "111122223333", Kind: inventory.KindVolume, ID: "vol-1"},
	}, round.Query{Now: now}); err == nil {
		t.Error("a resource of another cloud was looked for here and not found")
	}
}

// TestMetricsByAddress checks that metrics that name a host only by address are unassigned,
// because another network may use the same address.
func TestMetricsByAddress(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusForbidden, "AccessDenied", "no")
	})
	c, err := New(t.Context(), Options{RequestsPerSecond: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	p := c.scan(round.Query{}, newLimits(10_000)).place(&account{id: "1", cfg: c.config}, "us-east-1")
	r := &inventory.Resource{
		ID: "i-1", Kind: inventory.KindInstance, Detail: &inventory.Instance{},
		Aliases: []string{"ip-10-0-0-7", "10.0.0.7"},
	}
	p.measure(t.Context(), []*inventory.Resource{
		r,
	}, fortnight, func(*inventory.Resource, usage.SourceInfo) usage.Sink {
		return nil
	})
	for host, want := range map[string]string{"ip-10-0-0-7": "i-1", "10.0.0.7": ""} {
		if got, _ := p.identifyGPU(dims("Hostname", host, "gpu", "0")); got != want {
			t.Errorf("%s is %q, want %q", host, got, want)
		}
	}
}
