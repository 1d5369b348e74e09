# Who may do what. policies.tf has what curfew itself prints for reading and acting.

locals {
  ec2         = "arn:${local.partition}:ec2:${local.region}:${local.account}"
  ssm         = "arn:${local.partition}:ssm:${local.region}:${local.account}"
  public_ssm  = "arn:${local.partition}:ssm:${local.region}:"
  sessions    = aws_s3_bucket.this["sessions"].arn
  log_streams = [for g in aws_cloudwatch_log_group.this : "${g.arn}:*"]

  # The machines of each session have a role of their own, below the path of its installation.
  iam              = "arn:${local.partition}:iam::${local.account}"
  session_paths    = length(var.installations) > 0 ? [for i in var.installations : "curfew/sessions/${i}/*"] : ["curfew/sessions/*"]
  session_roles    = [for p in local.session_paths : "${local.iam}:role/${p}"]
  session_profiles = [for p in local.session_paths : "${local.iam}:instance-profile/${p}"]
  any_session_role = "${local.iam}:role/curfew/sessions/*"
  any_session_iam  = [local.any_session_role, "${local.iam}:instance-profile/curfew/sessions/*"]

  trust = jsonencode({
    Version = "2012-10-17"
    Statement = [merge(
      {
        Effect    = "Allow"
        Action    = "sts:AssumeRole"
        Principal = { AWS = var.curfew_principals }
      },
      { for key, value in { Condition = { StringEquals = { "sts:ExternalId" = var.external_id } } } : key => value if var.external_id != null },
    )]
  })

  issuer = try(split("oidc-provider/", var.runners.provider)[1], "")

  # The tags of a machine that curfew launches: presence of all three, and which installation.
  launched = merge(
    { Null = { for t in ["curfew:installation", "curfew:session", "curfew:owner"] : "aws:RequestTag/${t}" => "false" } },
    { for operator, keys in { StringEquals = { "aws:RequestTag/curfew:installation" = var.installations } } : operator => keys if length(var.installations) > 0 },
  )
  of_sessions = merge(
    { Null = { for t in ["curfew:installation", "curfew:session"] : "aws:ResourceTag/${t}" => "false" } },
    { for operator, keys in { StringEquals = { "aws:ResourceTag/curfew:installation" = var.installations } } : operator => keys if length(var.installations) > 0 },
  )

  # What no session, and nobody who launches one, may do to what stays.
  never_persistent = [
    {
      Sid    = "NeverPersistent"
      Effect = "Deny"
      Action = [
        "ec2:AssociateRouteTable", "ec2:AttachInternetGateway", "ec2:AuthorizeSecurityGroup*", "ec2:CreateRoute*", "ec2:Delete*Gateway", "ec2:DeleteRoute*",
        "ec2:DeleteSecurityGroup", "ec2:DeleteSnapshot", "ec2:DeleteSubnet", "ec2:DeleteVpc*", "ec2:DeregisterImage", "ec2:DetachInternetGateway",
        "ec2:DisassociateRouteTable", "ec2:ModifySecurityGroupRules", "ec2:ModifySubnetAttribute", "ec2:ModifyVpc*", "ec2:ReplaceRoute*", "ec2:RevokeSecurityGroup*",
        "ecr:BatchDeleteImage", "ecr:Delete*", "ecr:PutLifecyclePolicy", "ecr:SetRepositoryPolicy",
        "kms:DeleteAlias", "kms:DisableKey*", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion",
        "logs:AssociateKmsKey", "logs:Delete*", "logs:DisassociateKmsKey", "logs:PutRetentionPolicy",
        "s3:BypassGovernanceRetention", "s3:DeleteBucket*", "s3:DeleteObjectVersion", "s3:PutBucket*", "s3:PutEncryptionConfiguration",
        "s3:PutLifecycleConfiguration", "s3:PutObjectAcl",
        "secretsmanager:DeleteSecret", "secretsmanager:PutSecretValue",
        "ssm:CreateDocument", "ssm:DeleteDocument", "ssm:DeleteParameter*", "ssm:ModifyDocumentPermission", "ssm:PutParameter", "ssm:UpdateDocument*",
      ]
      Resource = "*"
    },
    {
      Sid       = "NeverTaggedPersistent"
      Effect    = "Deny"
      Action    = ["ec2:Delete*", "ec2:DeleteTags", "ec2:StopInstances", "ec2:TerminateInstances"]
      Resource  = "*"
      Condition = { StringEqualsIgnoreCase = { "aws:ResourceTag/curfew:lifetime" = "persistent" } }
    },
  ]

  # What launching a session takes, and what connecting to one's own.
  launches = [
    {
      # Existing tags, images and types cannot be told apart by resource.
      Sid    = "See"
      Effect = "Allow"
      Action = [
        "ec2:DescribeAddresses", "ec2:DescribeImages", "ec2:DescribeInstanceAttribute", "ec2:DescribeInstanceCreditSpecifications", "ec2:DescribeInstanceStatus",
        "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups", "ec2:DescribeSpotInstanceRequests", "ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets", "ec2:DescribeTags",
        "ec2:DescribeVolumes", "ec2:DescribeVpcs", "logs:DescribeLogGroups", "ssm:DescribeInstanceInformation",
      ]
      Resource = "*"
    },
    {
      Sid       = "LaunchMachines"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = "${local.ec2}:instance/*"
      Condition = merge(local.launched, { StringEquals = merge(try(local.launched.StringEquals, {}), { "ec2:MetadataHttpTokens" = "required" }), ArnLike = { "ec2:InstanceProfile" = local.session_profiles } })
    },
    {
      Sid       = "LaunchDisks"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = "${local.ec2}:volume/*"
      Condition = merge(local.launched, { Bool = { "ec2:Encrypted" = "true" } })
    },
    {
      Sid       = "LaunchRequests"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = "${local.ec2}:spot-instances-request/*"
      Condition = local.launched
    },
    {
      # An interface is made in the backbone's own network or not at all.
      Sid       = "LaunchInterfaces"
      Effect    = "Allow"
      Action    = "ec2:RunInstances"
      Resource  = "${local.ec2}:network-interface/*"
      Condition = { ArnEquals = { "ec2:Subnet" = [for s in local.machine_subnets : s.arn] } }
    },
    {
      Sid      = "LaunchFrom"
      Effect   = "Allow"
      Action   = "ec2:RunInstances"
      Resource = concat(["arn:${local.partition}:ec2:${local.region}::image/*", "${local.ec2}:image/*", aws_security_group.sessions.arn], [for s in local.machine_subnets : s.arn])
    },
    {
      Sid       = "TagOnCreate"
      Effect    = "Allow"
      Action    = "ec2:CreateTags"
      Resource  = [for r in ["instance", "network-interface", "spot-instances-request", "volume"] : "${local.ec2}:${r}/*"]
      Condition = merge(local.launched, { StringEquals = merge(try(local.launched.StringEquals, {}), { "ec2:CreateAction" = "RunInstances" }) })
    },
    {
      Sid       = "PassSessionRoles"
      Effect    = "Allow"
      Action    = "iam:PassRole"
      Resource  = local.session_roles
      Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
    },
    {
      # No role without the boundary, and so none that may do more than the machine policy. A role is
      # made with its tags, which the next statement allows.
      Sid       = "MakeRoles"
      Effect    = "Allow"
      Action    = "iam:CreateRole"
      Resource  = local.session_roles
      Condition = { ArnEquals = { "iam:PermissionsBoundary" = aws_iam_policy.machine.arn } }
    },
    {
      Sid       = "TagRoles"
      Effect    = "Allow"
      Action    = ["iam:CreateInstanceProfile", "iam:TagInstanceProfile", "iam:TagRole"]
      Resource  = concat(local.session_roles, local.session_profiles)
      Condition = local.launched
    },
    {
      Sid       = "MachinePolicyAlone"
      Effect    = "Allow"
      Action    = ["iam:AttachRolePolicy", "iam:DetachRolePolicy"]
      Resource  = local.session_roles
      Condition = { ArnEquals = { "iam:PolicyARN" = aws_iam_policy.machine.arn } }
    },
    {
      Sid      = "ReadRoles"
      Effect   = "Allow"
      Action   = ["iam:Get*", "iam:List*"]
      Resource = local.any_session_iam
    },
    {
      # By path, which stays as it is, and not by tags, which TagRoles writes.
      Sid      = "EndRoles"
      Effect   = "Allow"
      Action   = ["iam:AddRoleToInstanceProfile", "iam:DeleteInstanceProfile", "iam:DeleteRole", "iam:RemoveRoleFromInstanceProfile"]
      Resource = concat(local.session_roles, local.session_profiles)
    },
    {
      # IAM knows no resources for these.
      Sid      = "ListRoles"
      Effect   = "Allow"
      Action   = ["iam:ListInstanceProfiles", "iam:ListRoles"]
      Resource = "*"
    },
    {
      Sid       = "EndSessions"
      Effect    = "Allow"
      Action    = ["ec2:CancelSpotInstanceRequests", "ec2:DeleteNetworkInterface", "ec2:DeleteVolume", "ec2:ReleaseAddress", "ec2:TerminateInstances"]
      Resource  = [for r in ["elastic-ip", "instance", "network-interface", "spot-instances-request", "volume"] : "${local.ec2}:${r}/*"]
      Condition = local.of_sessions
    },
    {
      Sid      = "ReadParameters"
      Effect   = "Allow"
      Action   = ["ssm:GetParameter", "ssm:GetParameters", "ssm:GetParametersByPath"]
      Resource = ["${local.ssm}:parameter/curfew/backbone", "${local.ssm}:parameter/curfew/backbone/*", "${local.public_ssm}:parameter/aws/service/*"]
    },
    {
      Sid      = "SessionDocuments"
      Effect   = "Allow"
      Action   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject"]
      Resource = "${local.sessions}/sessions/*"
    },
    {
      Sid       = "ListSessionDocuments"
      Effect    = "Allow"
      Action    = "s3:ListBucket"
      Resource  = local.sessions
      Condition = { StringLike = { "s3:prefix" = "sessions/*" } }
    },
    {
      Sid      = "ListUploads"
      Effect   = "Allow"
      Action   = "s3:ListBucketMultipartUploads"
      Resource = local.sessions
    },
    {
      Sid      = "ReadLogs"
      Effect   = "Allow"
      Action   = ["logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"]
      Resource = local.log_streams
    },
  ]
  connects = [
    {
      Sid      = "OwnMachines"
      Effect   = "Allow"
      Action   = "ssm:StartSession"
      Resource = "${local.ec2}:instance/*"
      Condition = {
        StringEquals = { "ssm:resourceTag/curfew:owner" = "$${${var.owner_identity}}" }
        Null         = { "ssm:resourceTag/curfew:session" = "false" }
        BoolIfExists = { "ssm:SessionDocumentAccessCheck" = "true" }
      }
    },
    {
      # Port forwarding and SSH use AWS's own documents, which it does not record.
      Sid       = "ByTheseDocuments"
      Effect    = "Allow"
      Action    = "ssm:StartSession"
      Resource  = concat([aws_ssm_document.session.arn], [for d in ["AWS-StartPortForwardingSession", "AWS-StartSSHSession"] : "${local.public_ssm}:document/${d}"])
      Condition = { BoolIfExists = { "ssm:SessionDocumentAccessCheck" = "true" } }
    },
    {
      # By name for users of IAM, by AWS's own tag for roles.
      Sid      = "OwnConnections"
      Effect   = "Allow"
      Action   = ["ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"]
      Resource = "${local.ssm}:session/$${aws:userid}-*"
    },
    {
      Sid       = "OwnConnectionsByTag"
      Effect    = "Allow"
      Action    = ["ssm:ResumeSession", "ssm:TerminateSession"]
      Resource  = "${local.ssm}:session/*"
      Condition = { StringLike = { "ssm:resourceTag/aws:ssmmessages:session-id" = "$${aws:userid}" } }
    },
    {
      Sid      = "See"
      Effect   = "Allow"
      Action   = ["ec2:DescribeInstances", "ssm:DescribeSessions", "ssm:GetConnectionStatus"]
      Resource = "*"
    },
    {
      Sid      = "ReadParameters"
      Effect   = "Allow"
      Action   = ["ssm:GetParameter", "ssm:GetParameters"]
      Resource = "${local.ssm}:parameter/curfew/backbone/*"
    },
    {
      Sid      = "Key"
      Effect   = "Allow"
      Action   = "kms:GenerateDataKey"
      Resource = aws_kms_key.logs.arn
    },
  ]

  # No machine tells another one what to do, and no one who launches machines enters them.
  never_orders = {
    Sid    = "NeverOrders"
    Effect = "Deny"
    Action = [
      "ec2-instance-connect:*", "ssm:CreateAssociation*", "ssm:ResumeSession", "ssm:SendCommand", "ssm:StartAutomationExecution",
      "ssm:StartSession", "ssm:UpdateAssociation*",
    ]
    Resource = "*"
  }
}

# The most that whoever launches machines can ever be given.
resource "aws_iam_policy" "boundary" {
  name        = "${var.name}-session-boundary"
  description = "The most that the launcher of sessions may do"
  tags        = local.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid      = "Within"
        Effect   = "Allow"
        Action   = ["ec2:*", "logs:*", "s3:*", "ssm:*"]
        Resource = "*"
      },
      {
        Sid       = "OnlySessionRoles"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = local.any_session_role
        Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
      },
      {
        Sid       = "OnlyBelowTheMachinePolicy"
        Effect    = "Allow"
        Action    = "iam:CreateRole"
        Resource  = local.any_session_role
        Condition = { ArnEquals = { "iam:PermissionsBoundary" = aws_iam_policy.machine.arn } }
      },
      {
        Sid       = "OnlyTheMachinePolicy"
        Effect    = "Allow"
        Action    = ["iam:AttachRolePolicy", "iam:DetachRolePolicy"]
        Resource  = local.any_session_role
        Condition = { ArnEquals = { "iam:PolicyARN" = aws_iam_policy.machine.arn } }
      },
      {
        Sid    = "OnlyRolesOfSessions"
        Effect = "Allow"
        Action = [
          "iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile", "iam:DeleteRole", "iam:Get*", "iam:List*",
          "iam:RemoveRoleFromInstanceProfile", "iam:TagInstanceProfile", "iam:TagRole",
        ]
        Resource = local.any_session_iam
      },
      {
        Sid      = "List"
        Effect   = "Allow"
        Action   = ["iam:ListInstanceProfiles", "iam:ListRoles"]
        Resource = "*"
      },
    ], local.never_persistent, [local.never_orders])
  })
}

# The machines of sessions: the policy of each session's role, and its boundary. machine.tf has the
# statements; they name the session by the tags of the role, so each machine uses the prefixes of its
# own session.
resource "aws_iam_policy" "machine" {
  name        = "${var.name}-session-machine"
  description = "What the machines of a session may do, and the most that their role may be given"
  tags        = local.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(local.machine, [
      {
        Sid    = "ReadData"
        Effect = "Allow"
        Action = ["s3:GetObject", "s3:ListBucket"]
        Resource = flatten([for b in concat([aws_s3_bucket.this["data"].arn], [for name in var.dataset_buckets : "arn:${local.partition}:s3:::${name}"]) :
          [b, "${b}/*"]
        ])
      },
    ])
  })
}

# Curfew, while it reads.
resource "aws_iam_role" "read" {
  name                 = "${var.name}-backbone-read"
  description          = "curfew reads this account"
  max_session_duration = 3600
  assume_role_policy   = local.trust
  tags                 = local.tags
}

resource "aws_iam_role_policy" "read" {
  name   = "curfew-read"
  role   = aws_iam_role.read.id
  policy = local.scan
}

# Curfew, while it acts on what it governs.
resource "aws_iam_role" "act" {
  count = var.act ? 1 : 0

  name                 = "${var.name}-backbone-act"
  description          = "curfew reads this account and acts on what it governs"
  max_session_duration = 3600
  assume_role_policy   = local.trust
  tags                 = local.tags
}

resource "aws_iam_role_policy" "act" {
  count = var.act ? 1 : 0

  name   = "curfew-act"
  role   = aws_iam_role.act[0].id
  policy = local.enforce
}

# Curfew, while it starts and ends sessions.
resource "aws_iam_role" "launch" {
  name                 = "${var.name}-backbone-launch"
  description          = "curfew starts and ends sessions"
  max_session_duration = 3600
  permissions_boundary = aws_iam_policy.boundary.arn
  assume_role_policy   = local.trust
  tags                 = local.tags
}

resource "aws_iam_role_policy" "launch" {
  name = "sessions"
  role = aws_iam_role.launch.id

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat(local.launches, local.never_persistent, [local.never_orders])
  })
}

# The people who connect: each only to their own machines.
resource "aws_iam_policy" "connect" {
  name        = "${var.name}-connect"
  description = "Connect to one's own sessions"
  tags        = local.tags

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = local.connects
  })
}

# The runners of pipelines (curfew ci run): each launches machines and connects to those that are
# its own. It cannot tag a machine later, so these are the ones that it launched.
resource "aws_iam_role" "runner" {
  count = var.runners == null ? 0 : 1

  name                 = "${var.name}-backbone-runner"
  description          = "Pipelines run commands on machines of their own"
  max_session_duration = var.runners.hours * 3600
  tags                 = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = var.runners.provider }
      Condition = {
        StringEquals = { "${local.issuer}:aud" = var.runners.audience }
        StringLike   = { "${local.issuer}:sub" = var.runners.subjects }
      }
    }]
  })
}

resource "aws_iam_role_policy" "runner" {
  count = var.runners == null ? 0 : 1

  name = "sessions"
  role = aws_iam_role.runner[0].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(local.launches, local.connects, local.never_persistent, [
      {
        Sid      = "NeverOrders"
        Effect   = "Deny"
        Action   = [for a in local.never_orders.Action : a if !contains(["ssm:ResumeSession", "ssm:StartSession"], a)]
        Resource = "*"
      },
    ])
  })
}

# The people who apply terraform/session: the state of the backbone to read, their own to
# write.
resource "aws_iam_policy" "session_state" {
  count = var.state == null ? 0 : 1

  name        = "${var.name}-session-state"
  description = "State of sessions; that of the backbone read-only"
  tags        = local.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ReadBackbone"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "arn:${local.partition}:s3:::${var.state.bucket}/${var.state.key}"
      },
      {
        Sid      = "OwnState"
        Effect   = "Allow"
        Action   = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        Resource = "arn:${local.partition}:s3:::${var.state.bucket}/${var.state.session_prefix}*"
      },
      {
        Sid       = "List"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = "arn:${local.partition}:s3:::${var.state.bucket}"
        Condition = { StringLike = { "s3:prefix" = [var.state.key, "${var.state.session_prefix}*"] } }
      },
      {
        Sid      = "NeverBackbone"
        Effect   = "Deny"
        Action   = ["s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject"]
        Resource = "arn:${local.partition}:s3:::${var.state.bucket}/${var.state.key}*"
      },
      {
        Sid      = "Launch"
        Effect   = "Allow"
        Action   = "sts:AssumeRole"
        Resource = aws_iam_role.launch.arn
      },
    ]
  })
}
