package estimate

import (
	"encoding/json"
	"strings"
	"testing"
)

// object is a part of a plan.
type object = map[string]any

// planned is one resource of a plan. Config are the expressions of its configuration; nil
// leaves it out.
type planned struct {
	address, module        string
	actions                []string
	before, after, unknown any
	config                 object
}

// planOf writes a plan in us-east-1. modules are the calls of the root module.
func planOf(t testing.TB, modules object, all ...planned) string {
	t.Helper()
	var changes, configured []any
	for _, r := range all {
		steps := splitAddress(r.address)
		kind, name := steps[len(steps)-2], withoutKey(steps[len(steps)-1])
		change := object{"actions": r.actions, "before": r.before, "after": r.after, "after_unknown": r.unknown}
		if r.unknown == nil {
			change["after_unknown"] = object{}
		}
		changes = append(changes, object{
			"address": r.address, "mode": "managed", "type": kind, "name": name,
			"module_address": r.module, "change": change,
		})
		if r.config != nil && r.module == "" {
			configured = append(configured, object{
				"address": kind + "." + name, "mode": "managed", "type": kind, "name": name,
				"provider_config_key": "aws",
				"expressions":         r.config,
			})
		}
	}
	src, err := json.Marshal(object{"format_version": "1.2", "resource_changes": changes, "configuration": object{
		"provider_config": object{
			"aws": object{"name": "aws", "expressions": object{"region": object{"constant_value": "us-east-1"}}},
		},
		"root_module": object{"resources": configured, "module_calls": modules}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// estimated is the estimate of a plan.
func estimated(t testing.TB, src string) *Estimate {
	t.Helper()
	e, err := FromTerraform(strings.NewReader(src), "p.json", testBook(t), Params{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// made is a resource that the plan creates.
func made(address string, after object, unknown, config object) planned {
	return planned{address: address, actions: []string{"create"}, after: after, unknown: unknown, config: config}
}

// refs is an expression with references.
func refs(of ...string) object { return object{"references": of} }

var disk50 = []any{object{"ebs": []any{object{"volume_size": 50, "volume_type": "gp3"}}}}

// templateOf is a launch template of a type of machines, with one disk for $3.65 a month.
func templateOf(kind string, more ...any) object {
	out := object{"instance_type": kind, "block_device_mappings": disk50}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// groupOf is a group of three machines of a launch template.
func groupOf(template object) object {
	return object{"min_size": 3, "max_size": 3, "desired_capacity": 3, "launch_template": []any{template}}
}

// Three g5.xlarge at $1.00 and three p4d.24xlarge at $22 an hour, each with its disk.
const (
	threeSmall = "2200.95"
	threeLarge = "48190.95"
)

// TestChoosesLaunchTemplate checks that a group starts the machines of its launch template. If the
// template cannot be known, the most expensive possible one is priced and the gate asks.
func TestChoosesLaunchTemplate(t *testing.T) {
	late := object{"launch_template": []any{object{"id": true, "name": true}}}
	small := made("aws_launch_template.small", templateOf("g5.xlarge", "name", "small"), object{"id": true}, nil)
	large := made("aws_launch_template.large", templateOf("p4d.24xlarge", "name", "large"), object{"id": true}, nil)
	kept := func(address, id, kind string) planned {
		at := templateOf(kind, "id", id, "name", strings.TrimPrefix(id, "lt-"), "latest_version",
			4, "default_version", 4)
		return planned{address: address, actions: []string{"no-op"}, before: at, after: at}
	}
	group := func(expression object) planned {
		config := object{}
		if expression != nil {
			config["launch_template"] = []any{object{"id": expression, "version": object{"constant_value": "$Latest"}}}
		}
		return made("aws_autoscaling_group.g", groupOf(object{"version": "$Latest"}), late, config)
	}
	byID := func(id string) planned {
		return made("aws_autoscaling_group.g", groupOf(object{"id": id, "version": "$Latest"}),
			object{"launch_template": []any{object{"name": true}}},
			object{"launch_template": []any{object{"id": refs("local.template")}}})
	}
	keyed := func(address, kind string) planned { return made(address, templateOf(kind), object{"id": true}, nil) }
	const which = "which launch template it uses is known only after the plan is applied"
	for _, tc := range []struct {
		name    string
		modules object
		plan    []planned
		p95     string
		asks    string
	}{
		{
			"by a reference", nil,
			[]planned{
				small, large, group(refs("aws_launch_template.small.id", "aws_launch_template.small")),
			}, threeSmall, "",
		},
		{
			"by a reference to the other", nil,
			[]planned{
				small, large, group(refs("aws_launch_template.large.id", "aws_launch_template.large")),
			}, threeLarge, "",
		},
		{
			"by a condition", nil,
			[]planned{
				small, large,
				group(refs("var.big", "aws_launch_template.small.id", "aws_launch_template.small",
					"aws_launch_template.large.id",
					"aws_launch_template.large")),
			},
			threeLarge, which,
		},
		{
			"by a condition on alike ones", nil,
			[]planned{
				small, keyed("aws_launch_template.same", "g5.xlarge"),
				group(refs("aws_launch_template.small.id", "aws_launch_template.small", "aws_launch_template.same.id",
					"aws_launch_template.same")),
			},
			threeSmall, "",
		},
		{"by a local value", nil, []planned{small, large, group(refs("local.template"))}, threeLarge, which},
		{
			"by another attribute", nil,
			[]planned{
				small, large, group(refs("aws_launch_template.small.tags", "aws_launch_template.small")),
			}, threeLarge,
			which,
		},
		{
			"by a value that something else makes", nil,
			[]planned{
				small, large,
				group(refs("aws_launch_template.small.id", "aws_launch_template.small", "terraform_data.x.output",
					"terraform_data.x")),
			},
			threeLarge, which,
		},
		{"by a dynamic block", nil, []planned{small, group(nil)}, threeSmall, which},
		{
			"by a key", nil, []planned{
				keyed("aws_launch_template.k[0]", "g5.xlarge"), keyed("aws_launch_template.k[1]", "p4d.24xlarge"),
				group(refs("aws_launch_template.k[0].id", "aws_launch_template.k[0]", "aws_launch_template.k"))},
			threeSmall, ""},
		{
			"by a computed key", nil, []planned{
				keyed(`aws_launch_template.k["a.b"]`, "g5.xlarge"),
				keyed(`aws_launch_template.k["c]"]`, "p4d.24xlarge"),
				group(refs("aws_launch_template.k", "each.key"))}, threeLarge, which},
		{
			"by a computed key of one", nil,
			[]planned{
				keyed(`aws_launch_template.k["a.b"]`, "g5.xlarge"), large,
				group(refs("aws_launch_template.k", "each.key")),
			},
			threeSmall, "",
		},
		{
			"by its id", nil,
			[]planned{
				kept("aws_launch_template.a", "lt-a", "g5.xlarge"),
				kept("aws_launch_template.b", "lt-b", "p4d.24xlarge"),
				byID("lt-a"),
			},
			threeSmall, "",
		},
		{
			"by the id of the other", nil,
			[]planned{
				kept("aws_launch_template.a", "lt-a", "g5.xlarge"),
				kept("aws_launch_template.b", "lt-b", "p4d.24xlarge"),
				byID("lt-b"),
			},
			threeLarge, "",
		},
		{
			"by the id of one elsewhere", nil, []planned{small, byID("lt-z")}, "0.00",
			"its launch template lt-z is not in the plan",
		},
		{
			"by its name", nil,
			[]planned{
				small, large, made("aws_autoscaling_group.g", groupOf(object{"name": "large"}), nil, nil),
			}, threeLarge,
			"",
		},
		{
			"of the module around it", object{
				"pool": object{
					"expressions": object{
						"template": refs("aws_launch_template.large.id", "aws_launch_template.large"),
					},
					"module": object{"resources": []any{
						object{
							"mode": "managed", "type": "aws_autoscaling_group", "name": "g",
							"expressions": object{"launch_template": []any{object{"id": refs("var.template")}}},
						}}}}},
			[]planned{
				small, large,
				{
					address: `module.pool["x.y"].aws_autoscaling_group.g`, module: `module.pool["x.y"]`,
					actions: []string{"create"}, after: groupOf(object{}), unknown: late,
				},
			}, threeLarge, ""},
		{
			"of another module", object{
				"lt": object{
					"module": object{
						"outputs": object{
							"id": object{
								"expression": refs("aws_launch_template.deep.id", "aws_launch_template.deep"),
							},
						},
					},
				},
			},
			[]planned{
				large, {
					address: "module.lt.aws_launch_template.deep", module: "module.lt", actions: []string{"create"},
					after: templateOf("g5.xlarge"), unknown: object{"id": true},
				},
				group(refs("module.lt.id", "module.lt"))}, threeSmall, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := estimated(t, planOf(t, tc.modules, tc.plan...))
			asks := strings.Join(e.Open, "\n")
			if e.P95.String() != tc.p95 || (tc.asks == "") != (asks == "") || !strings.Contains(asks, tc.asks) {
				t.Errorf("%s at most, asks %q; want %s, %q", e.P95, asks, tc.p95, tc.asks)
			}
		})
	}
}

// TestTemplateVersions checks that a plan that changes a launch template changes the machines of
// groups that follow the newest version, also of those that it leaves as they are.
func TestTemplateVersions(t *testing.T) {
	before := templateOf("g5.xlarge", "id", "lt-v", "latest_version", 4, "default_version", 4)
	newest := func(more ...any) planned {
		after := templateOf("p4d.24xlarge", append([]any{"id", "lt-v", "default_version", 4}, more...)...)
		return planned{
			address: "aws_launch_template.v", actions: []string{"update"}, before: before, after: after,
			unknown: object{"latest_version": true},
		}
	}
	stays := func(version any) planned {
		at := groupOf(object{"id": "lt-v", "version": version})
		return planned{address: "aws_autoscaling_group.g", actions: []string{"no-op"}, before: at, after: at}
	}
	follows := planned{
		address: "aws_autoscaling_group.g", actions: []string{
			"update",
		}, before: groupOf(object{"id": "lt-v", "version": "4"}), after: groupOf(object{"id": "lt-v"}),
		unknown: object{"launch_template": []any{object{"version": true}}},
		config: object{
			"launch_template": []any{
				object{
					"id":      refs("aws_launch_template.v.id", "aws_launch_template.v"),
					"version": refs("aws_launch_template.v.latest_version", "aws_launch_template.v"),
				},
			},
		}}
	unclear := follows
	unclear.config = object{
		"launch_template": []any{
			object{"id": refs("aws_launch_template.v.id", "aws_launch_template.v"), "version": refs("local.version")},
		},
	}
	for _, tc := range []struct {
		name         string
		plan         []planned
		p95, monthly string
		asks         string
	}{
		{"the newest", []planned{newest(), stays("$Latest")}, "45990.00", threeLarge, ""},
		{"the old number", []planned{newest(), stays("4")}, "0.00", threeSmall, ""},
		{"the default, which stays", []planned{newest(), stays("$Default")}, "0.00", threeSmall, ""},
		{"no version, which is the default", []planned{newest(), stays(nil)}, "0.00", threeSmall, ""},
		{
			"the default, which follows", []planned{
				newest("update_default_version", true), stays("$Default"),
			}, "45990.00",
			threeLarge, "",
		},
		{"the newest by reference", []planned{newest(), follows}, "45990.00", threeLarge, ""},
		{
			"a version that is not clear", []planned{newest(), unclear}, "45990.00", threeLarge,
			"what version (known after the plan is applied)",
		},
		{"an older one", []planned{newest(), stays("2")}, "0.00", threeSmall, ""},
		{"the next number", []planned{newest(), stays("5")}, threeLarge, threeLarge, ""},
		{
			"a change of tags alone", []planned{
				{
					address: "aws_launch_template.v", actions: []string{"update"}, before: before,
					after: templateOf("g5.xlarge", "id", "lt-v", "latest_version", 4, "default_version", 4,
						"tags", object{"a": "b"}),
				},
				stays("$Latest")}, "0.00", threeSmall, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := estimated(t, planOf(t, nil, tc.plan...))
			asks := strings.Join(e.Open, "\n")
			if e.P95.String() != tc.p95 || e.Terraform.Monthly.String() != tc.monthly ||
				(tc.asks == "") != (asks == "") ||
				!strings.Contains(asks, tc.asks) {
				t.Errorf("%s at most, %s a month, asks %q; want %s, %s, %q", e.P95, e.Terraform.Monthly,
					asks, tc.p95, tc.monthly,
					tc.asks)
			}
		})
	}
}

// TestLaunchOptions: machines are charged by how their template buys them.
func TestLaunchOptions(t *testing.T) {
	group := func(template object, more ...any) []planned {
		at := groupOf(object{"name": "t"})
		for i := 0; i < len(more); i += 2 {
			at[more[i].(string)] = more[i+1]
		}
		template["name"] = "t"
		return []planned{
			made("aws_launch_template.t", template, nil, nil), made("aws_autoscaling_group.g", at, nil, nil),
		}
	}
	market := func(kind, market string) object {
		return templateOf(kind, "instance_market_options", []any{object{"market_type": market}})
	}
	warm := func(pool object) []any { return []any{pool} }
	mixed := func(distribution object, overrides ...any) []any {
		return []any{object{"instances_distribution": []any{distribution}, "launch_template": []any{object{
			"launch_template_specification": []any{object{"launch_template_name": "t"}}, "override": overrides}}}}
	}
	nodes := func(template object, more ...any) []planned {
		at := object{
			"scaling_config":  []any{object{"desired_size": 3, "max_size": 3}},
			"launch_template": []any{object{"name": "t", "version": "1"}},
		}
		for i := 0; i < len(more); i += 2 {
			at[more[i].(string)] = more[i+1]
		}
		template["name"] = "t"
		return []planned{made("aws_launch_template.t", template, nil, nil), made("aws_eks_node_group.n", at, nil, nil)}
	}
	instance := func(template object, own object) []planned {
		own["launch_template"] = []any{object{"name": "t"}}
		template["name"] = "t"
		return []planned{
			made("aws_launch_template.t", template, nil, nil),
			made("aws_instance.i", own, object{"instance_type": own["instance_type"] == nil, "tenancy": true},
				object{"launch_template": []any{object{"name": object{"constant_value": "t"}}}}),
		}
	}
	variant := func(v object) []planned {
		return []planned{
			made("aws_sagemaker_endpoint_configuration.e", object{"production_variants": []any{v}}, nil, nil),
		}
	}
	for _, tc := range []struct {
		name     string
		plan     []planned
		p50, p95 string
		machines int
		asks     string
	}{
		{"on demand", group(templateOf("g5.xlarge")), threeSmall, threeSmall, 3, ""},
		{"spot", group(market("g5.xlarge", "spot")), "886.95", "886.95", 3, ""},
		{"capacity block", group(market("p4d.24xlarge", "capacity-block")), "10.95", "10.95", 3, ""},
		{
			"a market of tomorrow", group(market("g5.xlarge", "futures")), threeSmall, threeSmall, 3,
			`its market "futures" is not known`,
		},
		{
			"dedicated", group(templateOf("g5.xlarge", "placement", []any{object{"tenancy": "dedicated"}})), "10.95",
			"10.95",
			3, `its tenancy is "dedicated"`,
		},
		{
			"a host", group(templateOf("g5.xlarge", "placement", []any{object{"host_id": "h-1"}})),
			threeSmall, threeSmall, 3,
			"its placement.host_id",
		},
		{
			"by requirements",
			group(templateOf("", "instance_requirements", []any{object{"memory_mib": []any{object{"min": 1}}}})),
			"10.95",
			"10.95", 0, "instance_requirements",
		},
		{
			"warm pool that is stopped",
			group(templateOf("g5.xlarge"), "max_size", 9, "warm_pool", warm(object{"min_size": 0})),
			"2222.85", "6602.85", 9,
			"",
		},
		{
			"warm pool that runs",
			group(templateOf("g5.xlarge"), "max_size", 5, "warm_pool",
				warm(object{"pool_state": "Running", "min_size": 1})),
			"3668.25", "4401.90", 6, "",
		},
		{
			"warm pool that is prepared",
			group(templateOf("g5.xlarge"), "max_size", 5, "warm_pool",
				warm(object{"pool_state": "Running", "max_group_prepared_capacity": 8})),
			"5869.20", "5869.20", 8, "",
		},
		{
			"warm pool of a size that comes later",
			group(templateOf("g5.xlarge"), "warm_pool", warm(object{"pool_state": "Melting"})),
			threeSmall, threeSmall, 3,
			`the state "Melting" of its warm pool`,
		},
		{
			"one type, a part on spot",
			group(templateOf("t3.nano"), "mixed_instances_policy",
				mixed(object{"on_demand_base_capacity": 1, "on_demand_percentage_above_base_capacity": 50},
					object{"instance_type": "g5.xlarge"})),
			"1762.95", "1762.95", 3, "",
		},
		{
			"two types",
			group(templateOf("t3.nano"), "mixed_instances_policy",
				mixed(object{}, object{"instance_type": "g5.xlarge"},
					object{"instance_type": "p4d.24xlarge"})),
			threeLarge, threeLarge, 3, "which of its 2 machine types start",
		},
		{
			"weights",
			group(templateOf("t3.nano"), "desired_capacity", 8, "max_size", 9, "mixed_instances_policy",
				mixed(object{}, object{"instance_type": "g5.xlarge", "weighted_capacity": "4"})),
			"1467.30", "2200.95", 3, "",
		},
		{
			"the template's type", group(templateOf("g5.xlarge"), "mixed_instances_policy",
				mixed(object{})), threeSmall,
			threeSmall, 3, "",
		},
		{
			"types by requirements",
			group(templateOf("g5.xlarge"), "mixed_instances_policy",
				mixed(object{}, object{"instance_requirements": []any{object{}}})),
			"0.00", "0.00", 0, "instance_requirements",
		},
		{
			"vCPUs in place of machines", group(templateOf("g5.xlarge"), "desired_capacity_type",
				"vcpu"), "0.00", "0.00", 0,
			"counted in vcpu",
		},
		{
			"launch configuration",
			[]planned{
				made("aws_autoscaling_group.g", object{
					"min_size": 1, "max_size": 1, "launch_configuration": "c",
				}, nil, nil),
			},
			"0.00", "0.00", 0, "launch_configuration",
		},
		{"node group", nodes(templateOf("g5.xlarge")), threeSmall, threeSmall, 3, ""},
		{
			"node group that is dedicated",
			nodes(templateOf("g5.xlarge", "placement", []any{object{"tenancy": "dedicated"}})), "10.95", "10.95", 3,
			"its tenancy",
		},
		{
			"node group of a capacity block",
			nodes(templateOf(""), "instance_types", []any{"p4d.24xlarge"}, "capacity_type", "CAPACITY_BLOCK"), "10.95",
			"10.95", 3, "",
		},
		{
			"node group of a new capacity", nodes(templateOf("g5.xlarge"), "capacity_type", "RESERVED"), threeSmall,
			threeSmall, 3, `its capacity type "RESERVED"`,
		},
		{
			"node group of two types", nodes(templateOf(""), "instance_types", []any{"g5.xlarge", "p4d.24xlarge"}),
			threeLarge, threeLarge, 3, "which of its 2 machine types",
		},
		{"instance by a template", instance(templateOf("g5.xlarge"), object{}), "733.65", "733.65", 1, ""},
		{"instance on spot by a template", instance(market("g5.xlarge", "spot"), object{}), "295.65", "295.65", 1, ""},
		{
			"instance that is dedicated by a template",
			instance(templateOf("g5.xlarge", "placement", []any{object{"tenancy": "dedicated"}}),
				object{}), "3.65", "3.65",
			1, "its tenancy",
		},
		{
			"instance with a type of its own",
			instance(templateOf("g5.xlarge"), object{"instance_type": "p4d.24xlarge"}),
			"16063.65", "16063.65", 1, "",
		},
		{
			"instance on a host",
			[]planned{
				made("aws_instance.i", object{
					"instance_type": "g5.xlarge", "host_id": "h-1",
					"root_block_device": []any{object{"volume_size": 50, "volume_type": "gp3"}},
				}, nil, nil),
			},
			"733.65", "733.65", 1, "host_id",
		},
		{
			"variant that scales",
			variant(object{
				"instance_type": "ml.g5.xlarge", "initial_instance_count": 1,
				"managed_instance_scaling": []any{object{"status": "ENABLED", "max_instance_count": 6}},
			}),
			"1027.84", "6167.04", 6, "",
		},
		{
			"variant that scales without end",
			variant(object{
				"instance_type": "ml.g5.xlarge", "initial_instance_count": 1,
				"managed_instance_scaling": []any{object{"status": "ENABLED"}},
			}),
			"1027.84", "1027.84", 1, "scales to",
		},
		{
			"variants that come later",
			[]planned{
				made("aws_sagemaker_endpoint_configuration.e", object{},
					object{"shadow_production_variants": true}, nil),
			},
			"0.00", "0.00", 0, "shadow_production_variants",
		},
		{
			"dedicated VPC", []planned{
				made("aws_vpc.v", object{"instance_tenancy": "dedicated"}, nil, nil),
			}, "0.00", "0.00",
			0, `tenancy "dedicated"`,
		},
		{"VPC", []planned{made("aws_vpc.v", object{"instance_tenancy": "default"}, nil, nil)}, "0.00", "0.00", 0, ""},
		{
			"policy that raises a group",
			[]planned{
				made("aws_autoscaling_policy.p", object{
					"predictive_scaling_configuration": []any{
						object{"max_capacity_breach_behavior": "IncreaseMaxCapacity"},
					},
				}, nil, nil),
			},
			"0.00", "0.00", 0, "raise the largest size",
		},
		{
			"accelerators of Google Cloud",
			[]planned{
				made("google_compute_instance.v", object{
					"machine_type": "n1-standard-4", "guest_accelerator": []any{
						object{"type": "nvidia-tesla-t4", "count": 4},
					},
				}, nil, nil),
			},
			"0.00", "0.00", 0, "guest_accelerator",
		},
		{
			"an attribute of tomorrow",
			[]planned{
				made("aws_ebs_volume.v", object{"size": 50, "type": "gp3", "replica_count": 7}, nil, nil),
			}, "3.65",
			"3.65", 0, "its replica_count may run or reserve more",
		},
		{
			"an attribute of tomorrow that comes later",
			[]planned{
				made("aws_ebs_volume.v", object{"size": 50, "type": "gp3"}, object{"replica_count": true},
					object{"replica_count": refs("local.n")}),
			},
			"3.65", "3.65", 0, "its replica_count",
		},
		{
			"a computed attribute of tomorrow",
			[]planned{
				made("aws_ebs_volume.v", object{"size": 50, "type": "gp3"}, object{"checksum": true},
					object{"size": refs("var.n")}),
			},
			"3.65", "3.65", 0, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := estimated(t, planOf(t, nil, tc.plan...))
			asks := strings.Join(e.Open, "\n")
			if e.P50.String() != tc.p50 || e.P95.String() != tc.p95 || e.Machines != tc.machines ||
				(tc.asks == "") != (asks == "") || !strings.Contains(asks, tc.asks) {
				t.Errorf("%s to %s, %d machines, asks %q; want %s to %s, %d, %q", e.P50, e.P95,
					e.Machines, asks, tc.p50, tc.p95,
					tc.machines, tc.asks)
			}
		})
	}
}
