package estimate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestReservationsCoverMachines checks that a machine that runs in a reservation is charged once.
func TestReservationsCoverMachines(t *testing.T) {
	reserve := func(action string, n int, more ...any) planned {
		at := object{"instance_type": "g5.xlarge", "instance_count": n, "availability_zone": "us-east-1b"}
		for i := 0; i < len(more); i += 2 {
			at[more[i].(string)] = more[i+1]
		}
		r := planned{address: "aws_ec2_capacity_reservation.r", actions: []string{action}, after: at}
		if action != "create" {
			r.before = at
		}
		return r
	}
	machine := func(n int, more ...any) planned {
		at := object{
			"instance_type": "g5.xlarge", "availability_zone": "us-east-1b",
			"root_block_device": []any{object{"volume_size": 50, "volume_type": "gp3"}},
		}
		for i := 0; i < len(more); i += 2 {
			at[more[i].(string)] = more[i+1]
		}
		return made(fmt.Sprintf("aws_instance.m[%d]", n), at, nil, nil)
	}
	target := func(id any) []any {
		return []any{object{"capacity_reservation_target": []any{object{"capacity_reservation_id": id}}}}
	}
	referring := func(to string) planned {
		m := machine(0, "capacity_reservation_specification", []any{
			object{"capacity_reservation_target": []any{object{}}},
		})
		m.unknown = object{
			"capacity_reservation_specification": []any{
				object{"capacity_reservation_target": []any{object{"capacity_reservation_id": true}}},
			},
		}
		m.config = object{
			"capacity_reservation_specification": []any{
				object{"capacity_reservation_target": []any{object{"capacity_reservation_id": refs(to+".id", to)}}},
			},
		}
		return m
	}
	for _, tc := range []struct {
		name     string
		plan     []planned
		p95      string
		machines int
	}{
		{"two open, one machine", []planned{reserve("create", 2), machine(0)}, "1463.65", 2},
		{
			"two open, three machines", []planned{reserve("create", 2), machine(0), machine(1), machine(2)}, "2200.95",
			3,
		},
		{"the machine first", []planned{machine(0), reserve("create", 1)}, "733.65", 1},
		{"another zone", []planned{reserve("create", 1), machine(0, "availability_zone", "us-east-1c")}, "1463.65", 2},
		{"an unknown zone", []planned{reserve("create", 1), machine(0, "availability_zone", nil)}, "1463.65", 2},
		{"another type", []planned{reserve("create", 1), machine(0, "instance_type", "p4d.24xlarge")}, "16793.65", 2},
		{
			"spot",
			[]planned{
				reserve("create", 1), machine(0, "instance_market_options", []any{object{"market_type": "spot"}}),
			},
			"1025.65", 2,
		},
		{
			"a machine that avoids it",
			[]planned{
				reserve("create", 1),
				machine(0, "capacity_reservation_specification", []any{
					object{"capacity_reservation_preference": "none"},
				}),
			},
			"1463.65", 2,
		},
		{
			"targeted, and no target", []planned{
				reserve("create", 1, "instance_match_criteria", "targeted"), machine(0),
			},
			"1463.65", 2,
		},
		{
			"targeted by reference",
			[]planned{
				reserve("create", 1, "instance_match_criteria", "targeted"),
				referring("aws_ec2_capacity_reservation.r"),
			},
			"733.65", 1,
		},
		{
			"another one targeted",
			[]planned{
				reserve("create", 1, "instance_match_criteria", "targeted"),
				referring("aws_ec2_capacity_reservation.other"),
			},
			"1463.65", 2,
		},
		{
			"one that is there, targeted by its id",
			[]planned{
				reserve("no-op", 1, "instance_match_criteria", "targeted", "id", "cr-1"),
				machine(0, "capacity_reservation_specification", target("cr-1")),
			},
			"3.65", 0,
		},
		{
			"one that is there, another id",
			[]planned{
				reserve("no-op", 1, "instance_match_criteria", "targeted", "id", "cr-1"),
				machine(0, "capacity_reservation_specification", target("cr-2")),
			},
			"733.65", 1,
		},
		{"an open one that is there, which others may fill", []planned{reserve("no-op", 1), machine(0)}, "733.65", 1},
		{
			"a group in one zone", []planned{
				reserve("create", 2), made("aws_launch_template.t", templateOf("g5.xlarge", "name", "t"), nil, nil),
				made("aws_autoscaling_group.g", object{
					"min_size": 1, "max_size": 3, "availability_zones": []any{"us-east-1b"},
					"launch_template": []any{object{"name": "t"}},
				}, nil, nil)}, "2200.95", 3},
		{
			"a group in two zones", []planned{
				reserve("create", 2), made("aws_launch_template.t", templateOf("g5.xlarge", "name", "t"), nil, nil),
				made("aws_autoscaling_group.g", object{
					"min_size": 1, "max_size": 3, "availability_zones": []any{"us-east-1b", "us-east-1c"},
					"launch_template": []any{object{"name": "t"}},
				}, nil, nil)}, "3660.95", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := estimated(t, planOf(t, nil, tc.plan...))
			if e.P95.String() != tc.p95 || e.Machines != tc.machines || len(e.Open) > 0 {
				t.Errorf("%s at most, %d machines, asks %q; want %s, %d", e.P95, e.Machines,
					e.Open, tc.p95, tc.machines)
			}
		})
	}
	for _, more := range [][]any{{"tenancy", "dedicated"}, {"instance_platform", "Windows"}} {
		if e := estimated(t, planOf(t, nil, reserve("create", 1, more...), machine(0))); len(e.Open) != 1 ||
			e.Machines != 2 {
			t.Errorf("%v: %d machines, asks %q", more, e.Machines, e.Open)
		}
	}
}

// TestUpdatesAreChargedForTheirDifference covers updates of machines, of an unpriced resource, and
// updates that the gate does not ask about.
func TestUpdatesAreChargedForTheirDifference(t *testing.T) {
	disk := []any{object{"volume_size": 50, "volume_type": "gp3"}}
	small, large := object{
		"instance_type": "g5.xlarge", "root_block_device": disk,
	}, object{"instance_type": "p4d.24xlarge", "root_block_device": disk}
	tagged := func(at object) object {
		out := object{"tags": object{"team": "a"}, "tags_all": object{"team": "a"}}
		for k, v := range at {
			out[k] = v
		}
		return out
	}
	bare, group := object{"instance_type": "g5.xlarge"}, groupOf(object{"id": "lt-elsewhere"})
	larger := groupOf(object{"id": "lt-elsewhere"})
	larger["max_size"] = 4
	update := func(address string, before, after object) planned {
		return planned{address: address, actions: []string{"update"}, before: before, after: after}
	}
	sized := func(desired, most int) object {
		return object{
			"scaling_config": []any{object{"desired_size": desired, "max_size": most}},
			"instance_types": []any{"g5.xlarge"},
			"disk_size":      50,
		}
	}
	for _, tc := range []struct {
		name             string
		plan             planned
		p50, p95, change string
		machines         int
		gpus             map[string]int
		asks             bool
	}{
		{
			"a larger type", update("aws_instance.i", small, large), "15330.00", "15330.00", "15330.00", 0,
			map[string]int{"A100-40GB": 8}, false,
		},
		{
			"a smaller type", update("aws_instance.i", large, small), "0.00", "0.00", "-15330.00", 0,
			map[string]int{"A10G": 1}, false,
		},
		{"a tag", update("aws_instance.i", small, tagged(small)), "0.00", "0.00", "0.00", 0, nil, false},
		{
			"a tag of one whose disk is not known", update("aws_instance.i", bare, tagged(bare)),
			"0.00", "0.00", "0.00", 0,
			nil, false,
		},
		{
			"a tag of a gateway that is charged by use",
			update("aws_nat_gateway.n", object{"id": "a"}, tagged(object{"id": "a"})), "0.00",
			"0.00", "0.00", 0, nil, false,
		},
		{
			"a tag of a group whose template is elsewhere",
			update("aws_autoscaling_group.g", group, tagged(group)), "0.00",
			"0.00", "0.00", 0, nil, false,
		},
		{
			"the size of a group whose template is elsewhere",
			update("aws_autoscaling_group.g", group, larger), "0.00",
			"0.00", "0.00", 0, nil, true,
		},
		{
			"a tag of an unpriced resource",
			update("aws_fsx_lustre_file_system.f", object{"storage_capacity": 1},
				tagged(object{"storage_capacity": 1})),
			"0.00", "0.00", "0.00", 0, nil, false,
		},
		{
			"the size of an unpriced resource",
			update("aws_fsx_lustre_file_system.f", object{"storage_capacity": 1}, object{"storage_capacity": 2}),
			"0.00",
			"0.00", "0.00", 0, nil, true,
		},
		{
			"a larger group", update("aws_eks_node_group.n", sized(1, 2), sized(1, 5)), "0.00", "2205.00", "0.00", 3,
			map[string]int{"A10G": 3}, false,
		},
		{
			"a group that starts what it may",
			update("aws_eks_node_group.n", sized(0, 2), sized(2, 2)), "1470.00", "1470.00",
			"1470.00", 0, nil, false,
		},
		{
			"a smaller group", update("aws_eks_node_group.n", sized(4, 4), sized(0, 4)), "0.00",
			"0.00", "-2940.00", 0, nil,
			false,
		},
		{
			"a machine that is deleted", planned{address: "aws_instance.i", actions: []string{"delete"}, before: bare},
			"0.00", "0.00", "-730.00", 0, nil, false,
		},
		{
			"a machine that is replaced",
			planned{
				address: "aws_instance.i", actions: []string{"delete", "create"}, before: small, after: small,
			}, "733.65",
			"733.65", "0.00", 1, map[string]int{"A10G": 1}, false,
		},
		{
			"a machine that is imported",
			planned{
				address: "aws_instance.i", actions: []string{"no-op"}, before: small, after: small,
			}, "0.00", "0.00",
			"0.00", 0, nil, false,
		},
		{
			"an action of tomorrow",
			planned{
				address: "aws_instance.i", actions: []string{"clone"}, before: small, after: small,
			}, "733.65", "733.65",
			"733.65", 1, map[string]int{"A10G": 1}, true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := estimated(t, planOf(t, nil, tc.plan))
			if e.P50.String() != tc.p50 || e.P95.String() != tc.p95 || e.Terraform.Change.String() != tc.change ||
				e.Machines != tc.machines ||
				len(e.GPUs) != len(tc.gpus) || len(e.Open) > 0 != tc.asks {
				t.Errorf("%s to %s, %s more, %d machines, %v, asks %q; want %s to %s, %s, %d, %v", e.P50, e.P95,
					e.Terraform.Change, e.Machines, e.GPUs, e.Open, tc.p50, tc.p95, tc.change, tc.machines, tc.gpus)
			}
			for gpu, n := range tc.gpus {
				if e.GPUs[gpu] != n {
					t.Errorf("%d × %s, want %d", e.GPUs[gpu], gpu, n)
				}
			}
			if p50, p95, err := sum(e.Lines); err != nil || p50 != e.P50 || p95 != e.P95 {
				t.Errorf("the lines add up to %s and %s, %v", p50, p95, err)
			}
		})
	}
}

// TestPlansThatAreNotWholeAsk: resources that a plan defers, starts by an action or could not
// finish are not in its changes.
func TestPlansThatAreNotWholeAsk(t *testing.T) {
	for name, tc := range map[string]struct {
		keys string
		asks bool
	}{
		"whole": {``, false},
		"deferred": {
			`,"deferred_changes":[{"reason":"instance_count_unknown","resource_change":{"address":"aws_instance.i[*]","mode":"managed","type":"aws_instance"}}]`,
			true,
		},
		"deferred data": {
			`,"deferred_changes":[{"reason":"deferred_prereq","resource_change":{"address":"data.aws_ami.i","mode":"data","type":"aws_ami"}}]`,
			false,
		},
		"an action": {
			`,"action_invocations":[{"address":"action.aws_codebuild_start_build.b","type":"aws_codebuild_start_build"}]`,
			true,
		},
		"errored": {`,"errored":true`, true},
	} {
		e := estimated(t, `{"format_version":"1.2","resource_changes":[]`+tc.keys+`}`)
		if len(e.Open) > 0 != tc.asks {
			t.Errorf("%s: asks %q", name, e.Open)
		}
	}
}

// TestTemplateOfTheState checks that a data source, or a template that the plan does not look at,
// is in the state before the plan.
func TestTemplateOfTheState(t *testing.T) {
	src := planOf(t, nil,
		made("aws_autoscaling_group.g", groupOf(object{"id": "lt-s", "version": "$Latest"}), nil, nil))
	state := `{"prior_state":{"values":{"root_module":{"child_modules":[{"resources":[{"address":"module.m.data.aws_launch_template.s","mode":"data","type":"aws_launch_template","values":` +
		`{"id":"lt-s","instance_type":"p4d.24xlarge","latest_version":3,"block_device_mappings":[{"ebs":[{"volume_size":50,"volume_type":"gp3"}]}]}}]}]}}},`
	if e := estimated(t, strings.Replace(src, "{", state, 1)); e.P95.String() != threeLarge || len(e.Open) > 0 {
		t.Errorf("%s, asks %q", e.P95, e.Open)
	}
}

func TestChains(t *testing.T) {
	got := chains([]string{"a.b[0].id", "a.b[0]", "a.b", "a.b", "var.x", "a.bc.id", "a.bc"})
	if want := []string{"a.b[0].id", "a.b", "var.x", "a.bc.id"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHashCoversTemplatesThatAreNotKnown checks that an approval of machines without a price covers
// the request of their launch templates.
func TestHashCoversTemplatesThatAreNotKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, least := range []int{1, 8} {
		template := templateOf("", "name", "t", "instance_requirements", []any{
			object{"accelerator_count": []any{object{"min": least}}},
		})
		e := estimated(t, planOf(t, nil, made("aws_launch_template.t", template, nil, nil),
			made("aws_autoscaling_group.g", groupOf(object{"name": "t"}), nil, nil)))
		if len(e.Open) == 0 || seen[e.SpecHash] {
			t.Errorf("asks %q, hash %s", e.Open, e.SpecHash)
		}
		seen[e.SpecHash] = true
	}
}
