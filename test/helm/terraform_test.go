package helm

import (
	"os"
	"reflect"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"sigs.k8s.io/yaml"
)

const moduleDir = "../../deploy/terraform/member-roles/"

// policies evaluates the local values of the module with these governed tags.
func policies(t *testing.T, governed cty.Value) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(moduleDir + "policies.tf")
	if err != nil {
		t.Fatal(err)
	}
	file, diags := hclsyntax.ParseConfig(raw, "policies.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	ctx := &hcl.EvalContext{
		Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{"governed_tags": governed})},
		Functions: map[string]function.Function{"jsonencode": stdlib.JSONEncodeFunc, "concat": stdlib.ConcatFunc},
	}
	out := map[string]any{}
	for name, attribute := range file.Body.(*hclsyntax.Body).Blocks[0].Body.Attributes {
		value, diags := attribute.Expr.Value(ctx)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		var doc any
		if err := yaml.Unmarshal([]byte(value.AsString()), &doc); err != nil {
			t.Fatal(err)
		}
		out[name] = doc
	}
	return out
}

// TestTerraformIsCloudFormation holds both documents against each other, statement by
// statement; internal/cloud/aws evaluates the one of CloudFormation against every call.
func TestTerraformIsCloudFormation(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/cloudformation/curfew-member-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Properties struct {
				Policies []struct{ PolicyDocument map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &template); err != nil {
		t.Fatal(err)
	}
	ephemeral := cty.TupleVal([]cty.Value{cty.MapVal(map[string]cty.Value{"curfew:lifetime": cty.StringVal("ephemeral")})})
	for _, governs := range []bool{false, true} {
		governed := cty.EmptyTupleVal
		if governs {
			governed = ephemeral
		}
		got := policies(t, governed)
		for local, resource := range map[string]string{"scan": "ReadRole", "enforce": "ActRole"} {
			doc := template.Resources[resource].Properties.Policies[0].PolicyDocument
			var statements []any
			for _, s := range doc["Statement"].([]any) {
				if choice, conditional := s.(map[string]any)["Fn::If"]; conditional {
					if !governs {
						continue
					}
					s = choice.([]any)[1]
				}
				statements = append(statements, s)
			}
			want := map[string]any{"Version": doc["Version"], "Statement": statements}
			if len(statements) < 2 || !reflect.DeepEqual(got[local], want) {
				t.Errorf("%s, governing ephemeral %v:\n%v\nwant\n%v", local, governs, got[local], want)
			}
		}
	}
}

// TestModuleParses reads every file of the module.
func TestModuleParses(t *testing.T) {
	files, err := os.ReadDir(moduleDir)
	if err != nil || len(files) != 4 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(moduleDir + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, diags := hclsyntax.ParseConfig(raw, f.Name(), hcl.InitialPos); diags.HasErrors() {
			t.Error(diags)
		}
	}
}
