# terraform init -backend=false && terraform test
# Plans alone: what holds data cannot be destroyed, and so is never made here.

mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_region" {
    defaults = { region = "us-east-1" }
  }
  mock_data "aws_availability_zones" {
    defaults = { names = ["us-east-1b", "us-east-1a"] }
  }
}

variables {
  region            = "us-east-1"
  curfew_principals = ["arn:aws:iam::111122223333:role/ops"]
}

run "defaults" {
  command = plan

  assert {
    condition     = toset(keys(aws_ssm_parameter.this)) == toset([for p in ["version", "bucket", "subnets", "security-group", "machine-policy", "log-group", "kms-key", "session-document"] : "/curfew/backbone/${p}"])
    error_message = "The parameters are not those of the contract."
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 0 && length(aws_iam_role.act) == 0 && length(aws_iam_policy.session_state) == 0
    error_message = "An option that is off has a resource."
  }

  assert {
    condition     = output.monthly_usd == "1.00" && length(output.monthly_unpriced) == 0
    error_message = "Without sessions it is the key alone that costs."
  }

  assert {
    condition = alltrue([for c in [aws_s3_bucket_lifecycle_configuration.sessions, aws_s3_bucket_lifecycle_configuration.data] :
      anytrue([for r in c.rule : try(r.abort_incomplete_multipart_upload[0].days_after_initiation == 7 && r.status == "Enabled" && r.filter[0].prefix == "", false)])
    ])
    error_message = "Abandoned uploads stay."
  }

  assert {
    condition     = one([for r in aws_s3_bucket_lifecycle_configuration.sessions.rule : r.filter[0].prefix if length(r.expiration) > 0]) == "sessions/control/"
    error_message = "Something else than control documents expires."
  }
}

run "private" {
  command = plan

  variables {
    nat_gateway = true
    act         = true
    cidr        = "10.1.0.0/20"
  }

  assert {
    condition     = alltrue([for s in concat(values(aws_subnet.private), values(aws_subnet.public)) : s.map_public_ip_on_launch == false]) && length(aws_subnet.public) == 1
    error_message = "A machine would get a public address."
  }

  assert {
    condition     = output.monthly_usd == "37.50"
    error_message = "A key, and 730 hours of a NAT gateway and an address: $1 + 730 × ($0.045 + $0.005)."
  }
}

run "a_region_without_prices" {
  command = plan

  variables {
    nat_gateway = true
  }

  override_data {
    target = data.aws_region.current
    values = { region = "me-central-1" }
  }

  assert {
    condition     = output.monthly_usd == null && length(output.monthly_unpriced) == 2
    error_message = "An unknown price counts as zero."
  }
}

run "mistakes" {
  command = plan

  variables {
    curfew_principals   = ["arn:aws:iam::111122223333:root"]
    governed_tags       = [{}]
    governed_buckets    = ["models-*"]
    owner_identity      = "aws:PrincipalTag/team"
    log_retention_days  = 31
    control_expire_days = 1
    cidr                = "10.0.0.0/24"
    name                = "Curfew"
    state               = { bucket = "b", key = "sessions/backbone", session_prefix = "sessions/" }
    runners             = { provider = "arn:aws:iam::111122223333:role/ci", subjects = ["*"], hours = 13 }
  }

  expect_failures = [
    var.curfew_principals, var.governed_tags, var.governed_buckets, var.owner_identity, var.log_retention_days, var.control_expire_days, var.cidr, var.name, var.state, var.runners,
  ]
}
