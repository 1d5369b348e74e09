# The roles that curfew assumes in this account. docs/deploy.md describes the set-up.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

data "aws_partition" "current" {}

locals {
  partition = data.aws_partition.current.partition

  trust = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { AWS = var.central_role_arn }
      Condition = { StringEquals = { "sts:ExternalId" = var.external_id } }
    }]
  })
}

resource "aws_iam_role" "read" {
  name                 = var.read_role_name
  description          = "curfew reads this account"
  max_session_duration = 3600
  assume_role_policy   = local.trust
}

resource "aws_iam_role_policy" "read" {
  name   = "curfew-read"
  role   = aws_iam_role.read.id
  policy = local.scan
}

resource "aws_iam_role" "act" {
  count                = var.act ? 1 : 0
  name                 = var.act_role_name
  description          = "curfew reads this account and acts on what it governs"
  max_session_duration = 3600
  assume_role_policy   = local.trust
}

resource "aws_iam_role_policy" "act" {
  count  = var.act ? 1 : 0
  name   = "curfew-act"
  role   = aws_iam_role.act[0].id
  policy = local.enforce
}
