# The machines of one session, with a state of their own. docs/terraform.md describes it.

terraform {
  required_version = ">= 1.7"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }

  # Filled in by terraform init -backend-config=FILE.
  backend "s3" {}
}

# The backbone is read, and read only: a state that another configuration wrote.
data "terraform_remote_state" "backbone" {
  backend = var.backbone.backend
  config  = var.backbone.config
}

locals {
  backbone = data.terraform_remote_state.backbone.outputs

  # The version of the backbone that this module reads (docs/terraform.md).
  contract = "2"

  # A session policy: what it denies, the role that launches cannot do either, whatever else
  # that role is ever given.
  limits = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = "*"
        Resource = "*"
      },
      {
        Sid    = "NeverPersistent"
        Effect = "Deny"
        Action = [
          "dynamodb:*", "ec2:*Gateway*", "ec2:*Route*", "ec2:*SecurityGroup*Egress", "ec2:*SecurityGroup*Ingress", "ec2:*Subnet", "ec2:*Vpc", "ec2:DeleteSecurityGroup",
          "ec2:DeleteSnapshot", "ec2:DeregisterImage", "ec2:ModifySecurityGroupRules", "ecr:BatchDelete*", "ecr:Delete*", "ecr:Put*", "ecr:Set*", "kms:Delete*", "kms:Disable*", "kms:Put*", "kms:Schedule*", "logs:Delete*",
          "logs:Put*Policy", "rds:*", "s3:BypassGovernanceRetention", "s3:Delete*", "s3:Put*", "secretsmanager:Delete*", "secretsmanager:Put*", "ssm:*Association*",
          "ssm:DeleteParameter*", "ssm:PutParameter", "ssm:SendCommand", "ssm:StartAutomationExecution", "ssm:StartSession", "sts:AssumeRole",
        ]
        Resource = "*"
      },
      {
        Sid         = "OnlySessionRoles"
        Effect      = "Deny"
        Action      = "iam:*"
        NotResource = [for kind in ["instance-profile", "role"] : "arn:*:iam::*:${kind}/curfew/sessions/*"]
      },
      {
        Sid       = "NeverTaggedPersistent"
        Effect    = "Deny"
        Action    = ["ec2:Delete*", "ec2:Modify*", "ec2:Stop*", "ec2:Terminate*"]
        Resource  = "*"
        Condition = { StringEqualsIgnoreCase = { "aws:ResourceTag/curfew:lifetime" = "persistent" } }
      },
    ]
  })

  zone = coalesce(var.zone, sort(keys(local.backbone.subnets))[0])

  tags = merge(var.tags, {
    "curfew:installation" = var.installation
    "curfew:session"      = var.session
    "curfew:owner"        = var.owner
    "curfew:lifetime"     = "ephemeral"
    "curfew:managed"      = "true"
    "curfew:lease-until"  = var.lease_until
  })

  role_tags = {
    "curfew:installation" = var.installation
    "curfew:session"      = var.session
    "curfew:session-name" = var.session
    "curfew:owner"        = var.owner
  }
}

provider "aws" {
  region = local.backbone.region

  assume_role {
    role_arn     = local.backbone.launch_role_arn
    session_name = "terraform-session"
    external_id  = var.external_id
    policy       = local.limits
  }
}

# The role of this session's machines. The machine policy takes the prefixes that they may use from
# its tags: sessions/control/SESSION/ and sessions/work/INSTALLATION/SESSION/.
resource "aws_iam_role" "machine" {
  name                 = "curfew-${var.session}-${local.backbone.region}"
  path                 = "/curfew/sessions/${var.installation}/${var.session}/"
  description          = "Machines of curfew session ${var.session}"
  permissions_boundary = local.backbone.machine_policy_arn
  tags                 = local.role_tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "machine" {
  role       = aws_iam_role.machine.name
  policy_arn = local.backbone.machine_policy_arn
}

resource "aws_iam_instance_profile" "machine" {
  name = aws_iam_role.machine.name
  path = aws_iam_role.machine.path
  role = aws_iam_role.machine.name
  tags = local.role_tags
}

# The newest image when the session is created; a newer one changes nothing of it.
data "aws_ssm_parameter" "image" {
  name = var.image_parameter
}

resource "aws_instance" "node" {
  count = var.nodes

  ami                    = data.aws_ssm_parameter.image.insecure_value
  instance_type          = var.instance_type
  subnet_id              = local.backbone.subnets[local.zone]
  vpc_security_group_ids = [local.backbone.security_group]
  iam_instance_profile   = aws_iam_instance_profile.machine.name
  # Not before the role may do what the machine needs.
  depends_on = [aws_iam_role_policy_attachment.machine]
  # The machine goes with its lease: it shuts itself down.
  instance_initiated_shutdown_behavior = "terminate"
  user_data                            = local.user_data
  tags                                 = merge(local.tags, { Name = "${var.session}-${count.index}" })
  volume_tags                          = local.tags

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted             = true
    volume_type           = "gp3"
    volume_size           = var.disk_gib
    delete_on_termination = true
  }

  dynamic "instance_market_options" {
    for_each = var.spot ? [true] : []

    content {
      market_type = "spot"

      spot_options {
        spot_instance_type             = "one-time"
        instance_interruption_behavior = "terminate"
      }
    }
  }

  lifecycle {
    # A newer image or a later lease changes nothing of a machine that runs; its tags are set at
    # the launch alone.
    ignore_changes = [ami, user_data, tags["curfew:lease-until"], volume_tags["curfew:lease-until"]]

    precondition {
      condition     = local.backbone.version == local.contract
      error_message = "The backbone has version ${local.backbone.version}, this module reads version ${local.contract}: use the module of the backbone's release."
    }

    precondition {
      condition     = contains(keys(local.backbone.subnets), local.zone)
      error_message = "The backbone has no subnet in ${local.zone}; it has ${join(", ", keys(local.backbone.subnets))}."
    }

    precondition {
      condition     = timecmp(var.lease_until, plantimestamp()) > 0
      error_message = "The lease ended at ${var.lease_until}: set a later one, or destroy the session."
    }
  }
}
