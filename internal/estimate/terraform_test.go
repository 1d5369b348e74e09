package estimate

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
)

func planFile(t testing.TB) string {
	t.Helper()
	src, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func TestGoldenTerraform(t *testing.T) {
	e, err := FromTerraform(strings.NewReader(planFile(t)), "plan.json", testBook(t), Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/plan.golden.json", e)
	p50, p95, err := sum(e.Lines)
	if err != nil || p50 != e.P50 || p95 != e.P95 {
		t.Errorf("the lines add up to %s and %s, not to %s and %s", p50, p95, e.P50, e.P95)
	}
	saved, _, err := sum(e.Terraform.Removed)
	if err != nil || saved != e.Terraform.Saved {
		t.Errorf("what is removed adds up to %s, not to %s", saved, e.Terraform.Saved)
	}
}

// change is a plan of one resource of AWS in us-east-1.
func change(kind, actions, before, after, unknown string) string {
	return `{"format_version":"1.2","resource_changes":[{"address":"` + kind + `.x","mode":"managed","type":"` + kind +
		`","name":"x","change":{"actions":[` + actions +
		`],"before":` + before + `,"after":` + after + `,"after_unknown":` + unknown +
		`}}],"configuration":{"provider_config":{"aws":{"name":"aws","expressions":{"region":{"constant_value":"us-east-1"}}}},"root_module":{}}}`
}

// created is a plan that creates one resource.
func created(kind, after string) string { return change(kind, `"create"`, "null", after, "{}") }

func TestTerraformResources(t *testing.T) {
	for _, tc := range []struct {
		name, src string
		p50       string // of the month
		unknown   []string
	}{
		{
			"instance",
			created("aws_instance",
				`{"instance_type":"g5.xlarge","root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`),
			"737.30", nil,
		},
		{
			"spot instance",
			created("aws_instance",
				`{"instance_type":"g5.xlarge","instance_market_options":[{"market_type":"spot"}],"root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`),
			"299.30", nil,
		},
		{
			"dedicated",
			created("aws_instance",
				`{"instance_type":"g5.xlarge","tenancy":"dedicated","root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`),
			"7.30", []string{`its tenancy is "dedicated"`},
		},
		{
			"image's disk", created("aws_instance", `{"instance_type":"g5.xlarge"}`), "730.00",
			[]string{"the size of its root disk is that of its image"},
		},
		{
			"type after apply",
			change("aws_instance", `"create"`, "null",
				`{"root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`,
				`{"instance_type":true}`),
			"7.30", []string{"instance_type is known only after the plan is applied"},
		},
		{
			"no type",
			created("aws_instance",
				`{"launch_template":[{"id":"lt-1"}],"root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`),
			"7.30", []string{"its launch template lt-1 is not in the plan"},
		},
		{
			"volume",
			created("aws_ebs_volume",
				`{"size":1000,"type":"gp3","iops":5000,"throughput":225,"availability_zone":"us-east-1a"}`),
			"87.00", nil,
		},
		{"io2 in tiers", created("aws_ebs_volume", `{"size":100,"type":"io2","iops":40000}`), "2456.50", nil},
		{
			"size after apply", change("aws_ebs_volume", `"create"`, "null", `{"type":"gp3"}`,
				`{"size":true}`), "0.00",
			[]string{"the size or type of its volume is not known"},
		},
		{"address", created("aws_eip", `{}`), "3.65", nil},
		{
			"NAT gateway", created("aws_nat_gateway", `{}`), "32.85",
			[]string{"what passes through it costs $0.045 a GiB"},
		},
		{"load balancer", created("aws_lb", `{"load_balancer_type":"network"}`), "16.425", []string{"charged by use"}},
		{"classic load balancer", created("aws_elb", `{}`), "18.25", []string{"charged by use"}},
		{"notebook", created("aws_sagemaker_notebook_instance", `{"instance_type":"ml.t3.medium"}`), "37.20", nil},
		{
			"endpoint",
			created("aws_sagemaker_endpoint_configuration",
				`{"production_variants":[{"instance_type":"ml.g5.xlarge","initial_instance_count":2},{"serverless_config":[{}]}]}`),
			"2055.68", []string{"a serverless variant is charged by use"},
		},
		{
			"database",
			created("aws_db_instance",
				`{"engine":"postgres","instance_class":"db.m5.large","allocated_storage":100,"storage_type":"gp3","multi_az":true}`),
			"282.88", nil,
		},
		{
			"database without a price",
			created("aws_db_instance",
				`{"engine":"oracle-ee","instance_class":"db.m5.large","allocated_storage":100}`),
			"11.50", []string{"the price of db.m5.large in us-east-1 is not in the price book"},
		},
		// 99.28 for the machine, 12.50 for the storage and 0.10 for each of 1,300 IOPS.
		{
			"database with IOPS",
			created("aws_db_instance",
				`{"engine":"mysql","instance_class":"db.t3.large","allocated_storage":100,"storage_type":"io1","iops":1300}`),
			"241.78", nil,
		},
		{
			"database with IOPS and no type",
			created("aws_db_instance",
				`{"engine":"mysql","instance_class":"db.t3.large","allocated_storage":100,"iops":1300}`),
			"241.78", nil,
		},
		// The baseline of gp3 from 400 GiB on is 12,000 IOPS; a standby doubles everything.
		{"database with IOPS over the baseline", created("aws_db_instance",
			`{"engine":"postgres","instance_class":"db.m5.large","allocated_storage":400,"storage_type":"gp3","iops":13000,"multi_az":true}`), "391.88", nil},
		{"database with IOPS within the baseline", created("aws_db_instance",
			`{"engine":"postgres","instance_class":"db.m5.large","allocated_storage":400,"storage_type":"gp3","iops":12000,"storage_throughput":500,"multi_az":true}`), "351.88", nil},
		{"database whose IOPS come later", change("aws_db_instance", `"create"`, "null",
			`{"engine":"mysql","instance_class":"db.t3.large","allocated_storage":100,"storage_type":"io1"}`,
			`{"iops":true}`),
			"111.78", []string{"the IOPS of its storage are not known"}},
		{"machine with a public address", created("aws_instance",
			`{"instance_type":"g5.xlarge","associate_public_ip_address":true,"root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`), "740.95", nil},
		{
			"another cloud",
			created("azurerm_linux_virtual_machine", `{"size":"Standard_NC24ads_A100_v4","location":"westeurope"}`),
			"0.00",
			[]string{"the price of Standard_NC24ads_A100_v4 in westeurope"},
		},
		{
			"mixed group",
			created("aws_autoscaling_group", `{"min_size":1,"max_size":2,"mixed_instances_policy":[{}]}`),
			"0.00", []string{"it mixes machine types"},
		},
		{
			"io2 whose IOPS come later",
			change("aws_ebs_volume", `"create"`, "null", `{"size":100,"type":"io2"}`, `{"iops":true}`), "12.50",
			[]string{"the IOPS of its volume are not known"},
		},
		{
			"node group",
			created("aws_eks_node_group",
				`{"instance_types":["g5.xlarge"],"disk_size":100,"scaling_config":[{"desired_size":2,"max_size":4,"min_size":0}]}`),
			"1480.00", nil,
		},
		{
			"node group on spot",
			created("aws_eks_node_group",
				`{"instance_types":["g5.xlarge"],"capacity_type":"SPOT","disk_size":100,"scaling_config":[{"desired_size":2,"max_size":4,"min_size":0}]}`),
			"604.00", nil,
		},
		{
			"node group of several types",
			created("aws_eks_node_group",
				`{"instance_types":["g5.xlarge","g5.2xlarge"],"scaling_config":[{"desired_size":2,"max_size":4}]}`),
			"1773.52", []string{"which of its 2 machine types start"},
		},
		{
			"node group of a template elsewhere",
			created("aws_eks_node_group",
				`{"launch_template":[{"id":"lt-1"}],"scaling_config":[{"desired_size":2,"max_size":4}]}`),
			"0.00", []string{"its launch template lt-1 is not in the plan"},
		},
		{
			"node group of a size that comes later",
			change("aws_eks_node_group", `"create"`, "null", `{"scaling_config":[{"max_size":4}]}`,
				`{"scaling_config":[{"desired_size":true}]}`),
			"0.00", []string{"its size is known only after"},
		},
		{
			"capacity reservation",
			created("aws_ec2_capacity_reservation", `{"instance_type":"g5.xlarge","instance_count":2}`), "1460.00",
			nil,
		},
		{
			"fleet", created("aws_ec2_fleet", `{"type":"maintain"}`), "0.00",
			[]string{"a resource of type aws_ec2_fleet runs machines"},
		},
		{
			"a type of machine in what has no price",
			created("aws_thing", `{"pool":[{"size":"p4d.24xlarge"}]}`), "0.00",
			[]string{"runs machines"},
		},
		{
			"a machine that comes later", change("google_thing", `"create"`, "null", `{}`,
				`{"machine_type":true}`), "0.00",
			[]string{"runs machines"},
		},
		{
			"no machine", created("random_id", `{"byte_length":4,"guest_accelerator":[],"instance_type":""}`), "0.00",
			nil,
		},
		{
			"region by the resource",
			created("aws_instance",
				`{"region":"us-west-2","instance_type":"p4d.24xlarge","root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`),
			"15337.30", nil,
		},
	} {
		e, err := FromTerraform(strings.NewReader(tc.src), "p.json", testBook(t), Params{Now: now})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		known := len(e.Unknown) == len(tc.unknown)
		for i := range tc.unknown {
			known = known && strings.Contains(e.Unknown[i], tc.unknown[i])
		}
		if e.P50.String() != tc.p50 || !known {
			t.Errorf("%s: %s a month, unknown %q; want %s, %q", tc.name, e.P50, e.Unknown, tc.p50, tc.unknown)
		}
	}
}

func TestTerraformActions(t *testing.T) {
	small, large := `{"size":100,"type":"gp3"}`, `{"size":300,"type":"gp3"}`
	for _, tc := range []struct {
		name, actions, before, after           string
		p50, monthly, today, difference, saved string
	}{
		{"create", `"create"`, "null", small, "7.30", "7.30", "0.00", "7.30", "0.00"},
		{"delete", `"delete"`, small, "null", "0.00", "0.00", "7.30", "-7.30", "7.30"},
		{"update", `"update"`, small, large, "14.60", "21.90", "7.30", "14.60", "0.00"},
		{"update that makes it smaller", `"update"`, large, small, "0.00", "7.30", "21.90", "-14.60", "0.00"},
		{
			"update of tags", `"update"`, small,
			`{"size":100,"type":"gp3","tags":{"a":"b"},"tags_all":{"a":"b"}}`, "0.00",
			"7.30", "7.30", "0.00", "0.00",
		},
		{"replace", `"delete","create"`, small, large, "21.90", "21.90", "7.30", "14.60", "7.30"},
		{"replace, the new one first", `"create","delete"`, large, small, "7.30", "7.30", "21.90", "-14.60", "21.90"},
		{"no-op", `"no-op"`, small, small, "0.00", "7.30", "7.30", "0.00", "0.00"},
		{"forget", `"forget"`, small, "null", "0.00", "7.30", "7.30", "0.00", "0.00"},
		{
			"replace, the old one left alone", `"create","forget"`, large, small, "7.30", "7.30", "21.90", "-14.60",
			"0.00",
		},
		{"read", `"read"`, "null", small, "0.00", "0.00", "0.00", "0.00", "0.00"},
	} {
		e, err := FromTerraform(strings.NewReader(change("aws_ebs_volume", tc.actions, tc.before, tc.after, "{}")),
			"p.json",
			testBook(t), Params{Now: now})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		x := e.Terraform
		got := []string{e.P50.String(), x.Monthly.String(), x.Before.String(), x.Change.String(), x.Saved.String()}
		if want := []string{tc.p50, tc.monthly, tc.today, tc.difference, tc.saved}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", tc.name, got, want)
		}
	}
}

func TestTerraformUnpriced(t *testing.T) {
	new9 := `{"instance_type":"x9.large","root_block_device":[{"volume_size":100,"volume_type":"gp3"}]}`
	e, err := FromTerraform(strings.NewReader(created("aws_instance", new9)), "p.json", testBook(t), Params{Now: now})
	if e != nil || !errors.Is(err, price.ErrUnpriced) ||
		!strings.Contains(err.Error(), "the price of x9.large on demand in us-east-1 (aws_instance.x) is not known") {
		t.Errorf("got %+v, %v", e, err)
	}
	// What the plan leaves as it is, or destroys, does not hinder it and is named.
	for _, action := range []string{`"no-op"`, `"delete"`} {
		e, err := FromTerraform(strings.NewReader(change("aws_instance", action, new9, new9, "{}")), "p.json",
			testBook(t),
			Params{Now: now})
		if err != nil || len(e.Unknown) != 1 || !strings.Contains(e.Unknown[0], "x9.large") {
			t.Errorf("%s: %+v, %v", action, e, err)
		}
	}
}

func TestTerraformRegion(t *testing.T) {
	src := created("aws_eip", "{}")
	for _, tc := range []struct {
		name, from, to string
		params         Params
		unknown        int
	}{
		{"constant", "", "", Params{}, 0},
		{"an unknown value", `{"constant_value":"us-east-1"}`, `{"references":["local.region"]}`, Params{}, 1},
		{"none", `"expressions":{"region":{"constant_value":"us-east-1"}}`, `"expressions":{}`, Params{}, 1},
		{
			"none, with a default", `"expressions":{"region":{"constant_value":"us-east-1"}}`, `"expressions":{}`,
			Params{Defaults: Defaults{Regions: []string{"us-east-1"}}}, 0,
		},
	} {
		e, err := FromTerraform(strings.NewReader(strings.Replace(src, tc.from, tc.to, 1)),
			"p.json", testBook(t), tc.params)
		if err != nil || len(e.Unknown) != tc.unknown || (tc.unknown == 0) != (len(e.Lines) == 1) {
			t.Errorf("%s: %+v, %v", tc.name, e, err)
		}
	}
}

// TestTerraformHash checks that an approval is bound to what is changed and how much.
func TestTerraformHash(t *testing.T) {
	hash := func(src string) string {
		t.Helper()
		e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t), Params{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return e.SpecHash
	}
	src := planFile(t)
	want := hash(src)
	for name, edit := range map[string][2]string{
		"spaces": {`"mode": "managed"`, `"mode":"managed"`}, "version": {"1.9.5", "1.10.0"},
		"a tag": {`"team": "vision"`, `"team": "nlp"`},
	} {
		if edited := strings.Replace(src, edit[0], edit[1], 1); edited == src || hash(edited) != want {
			t.Errorf("%s: the hash changes with what has no price", name)
		}
	}
	for name, edit := range map[string][2]string{
		"a machine": {"g5.2xlarge", "g5.xlarge"}, "a disk": {`"volume_size": 500`, `"volume_size": 600`},
		"the largest size": {`"max_size": 4`, `"max_size": 5`},
		"an address":       {"aws_instance.trainer[1]", "aws_instance.trainer[2]"},
		"an action":        {`"actions": ["delete"]`, `"actions": ["no-op"]`},
		"another resource": {
			"aws_iam_role.trainer", "aws_iam_role.other",
		}, "the market": {`"instance_market_options": []`, `"instance_market_options": [{"market_type": "spot"}]`},
	} {
		if edited := strings.Replace(src, edit[0], edit[1], 1); edited == src || hash(edited) == want {
			t.Errorf("%s: the hash stays", name)
		}
	}
}

func TestTerraformMistakes(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"not JSON", "{\n  \"a\": x\n}", "p.json:2:"},
		{"empty", "", "p.json:1:"},
		{"no plan", "{}", "it is not the output of `terraform show -json PLAN`"},
		{
			"a state", `{"format_version":"1.0","values":{}}`,
			"give `terraform show -json` the file of a plan, not of a state",
		},
		{"another version", `{"format_version":"9.0"}`, "does not satisfy"},
		{
			"too deep", `{"format_version":"1.2","planned_values":` + strings.Repeat("[", 200_000),
			"p.json:1:141: objects and lists are more than 100 deep in one another",
		},
		{"another shape", `{"format_version":"1.2","resource_changes":{}}`, "p.json:1:"},
	} {
		_, err := FromTerraform(strings.NewReader(tc.src), "p.json", testBook(t), Params{Now: now})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

func FuzzTerraform(f *testing.F) {
	f.Add(planFile(f))
	f.Add(created("aws_autoscaling_group", `{"min_size":1,"max_size":2,"launch_template":[{"name":"a"}]}`))
	f.Add(change("aws_sagemaker_endpoint_configuration", `"update"`,
		`{"production_variants":[{"instance_type":"ml.g5.xlarge"}]}`, `{"production_variants":[null,{}]}`,
		`{"production_variants":true}`))
	b := testBook(f)
	f.Fuzz(func(t *testing.T, src string) {
		e, err := FromTerraform(strings.NewReader(src), "p.json", b, Params{Now: now})
		if err != nil {
			if e != nil {
				t.Fatalf("%v, and an estimate", err)
			}
			return
		}
		p50, p95, err := sum(e.Lines)
		if err != nil || p50 != e.P50 || p95 != e.P95 || p95 < p50 || p50 < 0 {
			t.Fatalf("lines of %s and %s in %s and %s, %v", p50, p95, e.P50, e.P95, err)
		}
	})
}

// TestTerraformCountsWhatMayBe: quotas and the dollars of an hour are held for the largest
// size of a group, because it grows without an approval.
func TestTerraformCountsWhatMayBe(t *testing.T) {
	src := created("aws_eks_node_group",
		`{"instance_types":["g5.xlarge"],"disk_size":73,"scaling_config":[{"desired_size":0,"max_size":4,"min_size":0}]}`)
	e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t), Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	// 4 × $1.00 and 4 × 73 GiB × $0.10 / 730 h.
	if e.P50 != 0 || e.P95.String() != "2949.20" || e.Hourly.String() != "4.04" || e.Machines != 4 ||
		e.GPUs["A10G"] != 4 {
		t.Errorf("%s to %s, %s an hour, %d machines, GPUs %v", e.P50, e.P95, e.Hourly, e.Machines, e.GPUs)
	}
}

// TestTerraformHashCoversWhatHasNoPrice checks that an approval of unpriced machines is of exactly
// those.
func TestTerraformHashCoversWhatHasNoPrice(t *testing.T) {
	for _, kind := range []string{"aws_ec2_fleet", "aws_autoscaling_group"} {
		seen := map[string]bool{}
		for _, machine := range []string{"g5.xlarge", "p4d.24xlarge"} {
			src := created(kind,
				`{"min_size":1,"max_size":2,"mixed_instances_policy":[{"override":[{"instance_type":"`+machine+
					`"}]}]}`)
			e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t), Params{Now: now})
			if err != nil || len(e.Unknown) != 1 || seen[e.SpecHash] {
				t.Errorf("%s of %s: %+v, %v", kind, machine, e, err)
				continue
			}
			seen[e.SpecHash] = true
		}
	}
}

// TestTerraformOwner checks that a plan is for whom all that it pays for is tagged, so that it
// counts against their budgets.
func TestTerraformOwner(t *testing.T) {
	one := `{"address":"aws_eip.%s","mode":"managed","type":"aws_eip","name":"%s","change":{"actions":["create"],"before":null,"after":{%s},"after_unknown":{}}}`
	for _, tc := range []struct {
		name, a, b string
		want       inventory.Owner
		purpose    inventory.Purpose
	}{
		{
			"the same", `"tags":{"team":"vision","purpose":"training"}`,
			`"tags_all":{"Team":"vision","Purpose":"training"}`,
			inventory.Owner{Team: "vision"}, inventory.Training,
		},
		{
			"one project each", `"tags":{"team":"vision","project":"a"}`, `"tags":{"team":"vision","project":"b"}`,
			inventory.Owner{Team: "vision"}, "",
		},
		{"one of them without an owner", `"tags":{"team":"vision","purpose":"training"}`, ``, inventory.Owner{}, ""},
		{"no owner", ``, ``, inventory.Owner{}, ""},
	} {
		src := `{"format_version":"1.2","resource_changes":[` + fmt.Sprintf(one, "a", "a",
			tc.a) + "," + fmt.Sprintf(one,
			"b", "b", tc.b) + `]}`
		e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t),
			Params{Now: now, Defaults: Defaults{Regions: []string{"us-east-1"}}})
		if err != nil || e.Owner != tc.want || e.Purpose != tc.purpose {
			t.Errorf("%s: %+v, %v", tc.name, e, err)
		}
	}
}

// TestTerraformOwnerByMapping checks that the configured tags name the owner, not the usual ones.
func TestTerraformOwnerByMapping(t *testing.T) {
	const plan = `{"format_version":"1.2","terraform_version":"1.9.8","planned_values":{"root_module":{}},
"configuration":{"provider_config":{"aws":{"name":"aws","expressions":{"region":{"constant_value":"us-east-1"}}}},"root_module":{}},
"resource_changes":[{"address":"aws_instance.a","mode":"managed","type":"aws_instance","name":"a","change":{"actions":["create"],"before":null,
"after":{"instance_type":"g5.xlarge","tags":{"team":"wrong","crew":"vision"}},"after_unknown":{}}}]}`
	e, err := FromTerraform(strings.NewReader(plan), "plan.json", testBook(t),
		Params{Now: now, Tags: &inventory.TagMapping{Team: []string{"crew"}}})
	if err != nil {
		t.Fatal(err)
	}
	if e.Owner.Team != "vision" {
		t.Errorf("the owner is %+v", e.Owner)
	}
}
