// Package act changes resources: passes of policies, fixes, undos, and what people set against
// them: exemptions, freezes, confirmed fuses, consent.
package act
