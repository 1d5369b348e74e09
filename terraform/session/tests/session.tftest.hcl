# terraform init -backend=false && terraform test

mock_provider "aws" {
  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-1" }
  }
}

override_data {
  target = data.terraform_remote_state.backbone
  values = {
    outputs = {
      version            = "2"
      region             = "us-east-1"
      subnets            = { "us-east-1b" = "subnet-2", "us-east-1a" = "subnet-1" }
      security_group     = "sg-1"
      machine_policy_arn = "arn:aws:iam::111122223333:policy/curfew-session-machine"
      session_document   = "curfew-session"
      launch_role_arn    = "arn:aws:iam::111122223333:role/curfew-backbone-launch"
    }
  }
}

variables {
  backbone      = { backend = "s3", config = { bucket = "states", key = "backbone.tfstate", region = "us-east-1" } }
  session       = "demo"
  owner         = "AIDAANA"
  instance_type = "g6.2xlarge"
  lease_until   = "2999-01-01T00:00:00Z"
}

run "defaults" {
  assert {
    condition = alltrue([for i in aws_instance.node :
      i.metadata_options[0].http_tokens == "required" && i.root_block_device[0].encrypted && i.instance_initiated_shutdown_behavior == "terminate" &&
      i.subnet_id == "subnet-1" && i.vpc_security_group_ids == toset(["sg-1"]) && i.iam_instance_profile == "curfew-demo-us-east-1"
    ])
    error_message = "A machine is not launched as sessions are."
  }

  assert {
    condition = alltrue([for tags in [aws_instance.node[0].tags, aws_instance.node[0].volume_tags] :
      tags["curfew:installation"] == "terraform" && tags["curfew:session"] == "demo" && tags["curfew:owner"] == "AIDAANA" && tags["curfew:lifetime"] == "ephemeral"
    ])
    error_message = "Machines and disks do not carry the tags of their session."
  }

  assert {
    condition = (aws_iam_role.machine.permissions_boundary == "arn:aws:iam::111122223333:policy/curfew-session-machine" &&
      aws_iam_role_policy_attachment.machine.policy_arn == aws_iam_role.machine.permissions_boundary &&
      aws_iam_role.machine.path == "/curfew/sessions/terraform/demo/" && aws_iam_instance_profile.machine.path == aws_iam_role.machine.path &&
      aws_iam_role.machine.tags["curfew:session"] == "demo" && aws_iam_role.machine.tags["curfew:session-name"] == "demo" &&
    aws_iam_role.machine.tags["curfew:installation"] == "terraform")
    error_message = "The role of the machines may do more than the machine policy."
  }

  assert {
    condition     = length(output.limits) <= 2048
    error_message = "AWS takes session policies of at most 2,048 characters."
  }
}

run "nodes" {
  variables {
    nodes = 4
    spot  = true
    zone  = "us-east-1b"
    tags  = { "curfew:lifetime" = "persistent", team = "vision" }
  }

  assert {
    condition     = length(aws_instance.node) == 4 && alltrue([for i in aws_instance.node : i.subnet_id == "subnet-2" && i.instance_market_options[0].market_type == "spot"])
    error_message = "The nodes are not together on spot."
  }

  assert {
    condition     = aws_instance.node[3].tags["curfew:lifetime"] == "ephemeral" && aws_instance.node[3].tags["team"] == "vision"
    error_message = "A tag of the session was replaced."
  }
}

run "lease" {
  command = plan

  variables {
    lease_until = "2020-01-01T00:00:00Z"
  }

  expect_failures = [aws_instance.node]
}

run "zone" {
  command = plan

  variables {
    zone = "us-east-1z"
  }

  expect_failures = [aws_instance.node]
}

run "another_version" {
  command = plan

  override_data {
    target = data.terraform_remote_state.backbone
    values = {
      outputs = {
        version            = "1"
        region             = "us-east-1"
        subnets            = { "us-east-1a" = "subnet-1" }
        security_group     = "sg-1"
        machine_policy_arn = "arn:aws:iam::111122223333:policy/curfew-session-machine"
        session_document   = "curfew-session"
        launch_role_arn    = "arn:aws:iam::111122223333:role/curfew-backbone-launch"
      }
    }
  }

  expect_failures = [aws_instance.node]
}

run "mistakes" {
  command = plan

  variables {
    session     = "Demo Session"
    owner       = ""
    nodes       = 0
    disk_gib    = 1
    lease_until = "tomorrow"
  }

  expect_failures = [var.session, var.owner, var.nodes, var.disk_gib, var.lease_until]
}
