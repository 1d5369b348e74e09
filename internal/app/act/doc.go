// Package act changes resources: passes of policies, fixes and undos, and the controls that people
// have over them: exemptions, freezes, confirmed fuses and consent.
package act
