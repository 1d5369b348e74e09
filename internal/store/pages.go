package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// pagesVFS is the name of the SQLite VFS for files with page checksums.
	pagesVFS = "curfew"
	// pageSizeOnDisk is the page size of every database, and sumSize the size of the checksum at the end
	// of each page.
	pageSizeOnDisk, sumSize = 4096, 8
	// headerSize is the size of the file header. At reservedAt it has the number of bytes reserved
	// at the end of each page, at diskPageAt the page size.
	headerSize, diskPageAt, reservedAt = 100, 16, 20
)

// castagnoli is hardware-accelerated, like the IEEE polynomial.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of a page at a file offset: two independent 32-bit sums, so that a
// damaged or misplaced page passes with probability 2^-64.
func sumOf(page []byte, offset int64) uint64 {
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(offset))
	content := page[:len(page)-sumSize]
	return uint64(crc32.Update(crc32.Update(0, castagnoli, at[:]), castagnoli, content))<<32 |
		uint64(crc32.Update(crc32.Update(0, crc32.IEEETable, at[:]), crc32.IEEETable, content))
}

// seal writes the checksum to the end of a page.
func seal(page []byte, offset int64) {
	binary.BigEndian.PutUint64(page[len(page)-sumSize:], sumOf(page, offset))
}

// intact reports whether a page matches its checksum.
func intact(page []byte, offset int64) bool {
	return binary.BigEndian.Uint64(page[len(page)-sumSize:]) == sumOf(page, offset)
}

// sealed reports whether the header of a file, or its first page, reserves space for checksums.
func sealed(header []byte) bool {
	size := int(binary.BigEndian.Uint16(header[diskPageAt:]))
	return size == pageSizeOnDisk && header[reservedAt] == sumSize
}

// The methods of files in SQLite's calling convention.
type (
	openMethod = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	ioMethod   = func(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32
)

// plainFiles are the files of the operating system, as SQLite opens them.
var plainFiles struct {
	vfs     uintptr
	open    openMethod
	checked uintptr // the name of the VFS with checksums
	mu      sync.Mutex
	methods map[methodsKey]*checkedMethods
}

// methodsKey identifies the operating system's methods, for a database or for its log.
type methodsKey struct {
	of  uintptr
	log bool
}

// checkedMethods are the methods of a database with page checksums, or of its log.
type checkedMethods struct {
	table       sqlite3.Tsqlite3_io_methods
	read, write ioMethod
	// own keeps the methods reachable for the garbage collector; the table does not.
	own [2]ioMethod
}

// registerPages registers the VFS with SQLite.
var registerPages = sync.OnceValue(func() error {
	tls := libc.NewTLS() // lives as long as the process
	if code := sqlite3.Xsqlite3_initialize(tls); code != sqlite3.SQLITE_OK {
		return fmt.Errorf("begin with SQLite: %d", code)
	}
	plainFiles.vfs = sqlite3.Xsqlite3_vfs_find(tls, 0)
	name, err := libc.CString(pagesVFS)
	if err != nil {
		return err
	}
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	if plainFiles.vfs == 0 || own == 0 {
		return errors.New("begin with SQLite: there are no files")
	}
	of := vfsAt(own)
	*of = *vfsAt(plainFiles.vfs)
	plainFiles.open = *(*openMethod)(unsafe.Pointer(&struct{ uintptr }{of.FxOpen}))
	plainFiles.methods = map[methodsKey]*checkedMethods{}
	var open openMethod = openChecked
	of.FzName, of.FpNext, of.FxOpen = name, 0, functionOf(open)
	plainFiles.checked = name
	if code := sqlite3.Xsqlite3_vfs_register(tls, own, 0); code != sqlite3.SQLITE_OK {
		return fmt.Errorf("register the files of SQLite: %d", code)
	}
	return nil
})

// functionOf returns a function pointer in the form of SQLite's tables.
func functionOf(f any) uintptr {
	type iface [2]uintptr
	return (*iface)(unsafe.Pointer(&f))[1]
}

func vfsAt(p uintptr) *sqlite3.Tsqlite3_vfs {
	return (*sqlite3.Tsqlite3_vfs)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

func fileAt(p uintptr) *sqlite3.Tsqlite3_file {
	return (*sqlite3.Tsqlite3_file)(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
}

// bytesAt returns SQLite memory as a slice.
func bytesAt(p uintptr, n int32) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// openChecked opens a file; for a database and its log it installs methods that check pages.
func openChecked(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	code := plainFiles.open(tls, plainFiles.vfs, name, file, flags, outFlags)
	if code != sqlite3.SQLITE_OK || flags&(sqlite3.SQLITE_OPEN_MAIN_DB|sqlite3.SQLITE_OPEN_WAL) == 0 {
		return code
	}
	f := fileAt(file)
	f.FpMethods = checked(f.FpMethods, flags&sqlite3.SQLITE_OPEN_WAL != 0)
	return code
}

// checked returns the table of checking methods for the operating system's methods.
func checked(of uintptr, log bool) uintptr {
	plainFiles.mu.Lock()
	defer plainFiles.mu.Unlock()
	m := plainFiles.methods[methodsKey{of, log}]
	if m == nil {
		m = &checkedMethods{table: *(*sqlite3.Tsqlite3_io_methods)(*(*unsafe.Pointer)(unsafe.Pointer(&of)))}
		m.read = *(*ioMethod)(unsafe.Pointer(&struct{ uintptr }{m.table.FxRead}))
		m.write = *(*ioMethod)(unsafe.Pointer(&struct{ uintptr }{m.table.FxWrite}))
		m.own = [2]ioMethod{m.readPage, m.writePage}
		if log {
			m.own = [2]ioMethod{m.readLog, m.writeLog}
		}
		m.table.FxRead, m.table.FxWrite = functionOf(m.own[0]), functionOf(m.own[1])
		m.table.FiVersion = min(m.table.FiVersion, 2) // memory maps would bypass the methods
		plainFiles.methods[methodsKey{of, log}] = m
	}
	return uintptr(unsafe.Pointer(&m.table)) // kept in the map, never moved
}

// readPage reads a page or part of the header, and rejects a damaged page.
func (m *checkedMethods) readPage(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32 {
	code := m.read(tls, file, buffer, amount, offset)
	if code != sqlite3.SQLITE_OK {
		return code // including end of file
	}
	read := bytesAt(buffer, amount)
	switch {
	case offset%pageSizeOnDisk == 0 && amount == pageSizeOnDisk:
		if !intact(read, offset) || offset == 0 && !sealed(read) {
			return sqlite3.SQLITE_IOERR_DATA
		}
	case offset == 0 && amount >= headerSize:
		if !sealed(read) {
			return sqlite3.SQLITE_IOERR_DATA
		}
	case offset+int64(amount) > headerSize:
		return m.checkAround(tls, file, read, offset)
	}
	return code
}

// checkAround rejects a read of part of a damaged page. SQLite reads long values in parts,
// bypassing its cache (SQLITE_DIRECT_OVERFLOW_READ).
func (m *checkedMethods) checkAround(tls *libc.TLS, file uintptr, read []byte, offset int64) int32 {
	within := offset % pageSizeOnDisk
	if within+int64(len(read)) > pageSizeOnDisk {
		return sqlite3.SQLITE_IOERR_DATA // a different page size
	}
	page, code := m.part(tls, file, offset-within, pageSizeOnDisk)
	if code != sqlite3.SQLITE_OK {
		return code
	}
	if !intact(page, offset-within) || !bytes.Equal(read, page[within:within+int64(len(read))]) {
		return sqlite3.SQLITE_IOERR_DATA
	}
	return code
}

// writePage seals and writes a page. SQLite does not use the end of the page.
func (m *checkedMethods) writePage(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32 {
	page := bytesAt(buffer, amount)
	if offset%pageSizeOnDisk != 0 || amount != pageSizeOnDisk || offset == 0 && !sealed(page) {
		return sqlite3.SQLITE_IOERR_DATA
	}
	seal(page, offset)
	return m.write(tls, file, buffer, amount, offset)
}

// The log (https://sqlite.org/fileformat2.html#the_write_ahead_log): a header, then frames of a
// header and a page each. Checksums of frames are cumulative.
const (
	logHeader, frameHeader = 32, 24
	// headerSumAt and frameSumAt are the offsets of the checksums in the headers.
	headerSumAt, frameSumAt = 24, 16
)

// isFramePage reports whether a page of the log is at an offset.
func isFramePage(amount int32, offset int64) bool {
	return amount == pageSizeOnDisk && offset >= logHeader &&
		(offset-logHeader)%(frameHeader+pageSizeOnDisk) == frameHeader
}

// readLog reads a page of the log and rejects a damaged one. Whole frames are read in recovery,
// which uses SQLite's own checksums.
func (m *checkedMethods) readLog(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32 {
	code := m.read(tls, file, buffer, amount, offset)
	if code != sqlite3.SQLITE_OK || !isFramePage(amount, offset) {
		return code
	}
	header, code := m.part(tls, file, offset-frameHeader, frameHeader)
	if code == sqlite3.SQLITE_OK && !intact(bytesAt(buffer, amount), placeOf(header)) {
		code = sqlite3.SQLITE_IOERR_DATA
	}
	return code
}

// placeOf returns the database offset of a frame's page.
func placeOf(header []byte) int64 {
	return (int64(binary.BigEndian.Uint32(header)) - 1) * pageSizeOnDisk
}

// writeLog seals a page and writes it to the log, so that a later checkpoint, possibly by another
// program, copies its checksum to the database. The frame header is already written with the
// checksum of the unsealed page and is corrected.
func (m *checkedMethods) writeLog(tls *libc.TLS, file, buffer uintptr, amount int32, offset int64) int32 {
	switch {
	case offset >= logHeader && amount > frameHeader && !isFramePage(amount, offset):
		return sqlite3.SQLITE_IOERR_DATA // a different page size
	case !isFramePage(amount, offset):
		return m.write(tls, file, buffer, amount, offset)
	}
	frame := offset - frameHeader
	header, code := m.part(tls, file, frame, frameHeader)
	if code != sqlite3.SQLITE_OK {
		return code
	}
	page := bytesAt(buffer, amount)
	seal(page, placeOf(header))
	if code := m.write(tls, file, buffer, amount, offset); code != sqlite3.SQLITE_OK {
		return code
	}
	log, code := m.part(tls, file, 0, logHeader)
	if code != sqlite3.SQLITE_OK {
		return code
	}
	before := log[headerSumAt:]
	if frame > logHeader {
		if before, code = m.part(tls, file, frame-pageSizeOnDisk-frameHeader+frameSumAt,
			sumSize); code != sqlite3.SQLITE_OK {
			return code
		}
	}
	var order binary.ByteOrder = binary.LittleEndian
	if log[3]&1 != 0 {
		order = binary.BigEndian
	}
	a, b := binary.BigEndian.Uint32(before), binary.BigEndian.Uint32(before[4:])
	a, b = frameSum(order, header[:8], a, b)
	a, b = frameSum(order, page, a, b)
	sum := libc.Xmalloc(tls, sumSize)
	if sum == 0 {
		return sqlite3.SQLITE_IOERR_NOMEM
	}
	defer libc.Xfree(tls, sum)
	text := bytesAt(sum, sumSize)
	binary.BigEndian.PutUint32(text, a)
	binary.BigEndian.PutUint32(text[4:], b)
	return m.write(tls, file, sum, sumSize, frame+frameSumAt)
}

// frameSum continues the checksum of a frame.
func frameSum(order binary.ByteOrder, text []byte, a, b uint32) (uint32, uint32) {
	if order == binary.LittleEndian { // the usual order, without a call for each word
		for ; len(text) >= 8; text = text[8:] {
			a += binary.LittleEndian.Uint32(text) + b
			b += binary.LittleEndian.Uint32(text[4:]) + a
		}
		return a, b
	}
	for ; len(text) >= 8; text = text[8:] {
		a += order.Uint32(text) + b
		b += order.Uint32(text[4:]) + a
	}
	return a, b
}

// part reads a few bytes of a file.
func (m *checkedMethods) part(tls *libc.TLS, file uintptr, offset int64, n int32) ([]byte, int32) {
	buffer := libc.Xmalloc(tls, libc.Tsize_t(n))
	if buffer == 0 {
		return nil, sqlite3.SQLITE_IOERR_NOMEM
	}
	defer libc.Xfree(tls, buffer)
	code := m.read(tls, file, buffer, n, offset)
	return slices.Clone(bytesAt(buffer, n)), code
}

// isSealed reports whether a database has page checksums; an empty file has none yet.
func isSealed(path string) (sealedFile, empty bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	header := make([]byte, headerSize)
	if n, err := f.ReadAt(header, 0); n < headerSize {
		if n == 0 {
			return false, true, nil
		}
		return false, false, err
	}
	return sealed(header), false, nil
}

// rawSQLite is a connection for operations that database/sql does not have.
type rawSQLite struct {
	tls *libc.TLS
	db  uintptr
}

// openRaw opens a database, with or without page checks, and reserves space for checksums in a new
// one.
func openRaw(path string, check bool) (*rawSQLite, error) {
	if err := registerPages(); err != nil {
		return nil, err
	}
	c := &rawSQLite{tls: libc.NewTLS()}
	name, err := libc.CString(path)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, name)
	vfs := uintptr(0)
	if check {
		vfs = plainFiles.checked
	}
	out := libc.Xmalloc(c.tls, libc.Tsize_t(unsafe.Sizeof(uintptr(0))))
	defer libc.Xfree(c.tls, out)
	code := sqlite3.Xsqlite3_open_v2(c.tls, name, out, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_CREATE|
		sqlite3.SQLITE_OPEN_URI, vfs)
	c.db = *(*uintptr)(*(*unsafe.Pointer)(unsafe.Pointer(&out)))
	if code == sqlite3.SQLITE_OK {
		*(*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&out))) = sumSize
		code = sqlite3.Xsqlite3_file_control(c.tls, c.db, 0, sqlite3.SQLITE_FCNTL_RESERVE_BYTES, out)
	}
	if code != sqlite3.SQLITE_OK {
		return nil, errors.Join(fmt.Errorf("open it: %w", c.explain(code)), c.close())
	}
	return c, nil
}

// exec runs statements.
func (c *rawSQLite) exec(statements string) error {
	text, err := libc.CString(statements)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, text)
	if code := sqlite3.Xsqlite3_exec(c.tls, c.db, text, 0, 0, 0); code != sqlite3.SQLITE_OK {
		return c.explain(code)
	}
	return nil
}

// rawError is an error of SQLite with its code.
type rawError struct {
	code int32
	text string
}

func (e *rawError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// Code returns the result code, like [sqlite.Error].
func (e *rawError) Code() int { return int(e.code) }

func (c *rawSQLite) explain(code int32) error {
	text := sqlite.ErrorCodeString[int(code)]
	if c.db != 0 {
		text = libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
		code = sqlite3.Xsqlite3_extended_errcode(c.tls, c.db)
	}
	return &rawError{code, text}
}

func (c *rawSQLite) close() error {
	var err error
	if code := sqlite3.Xsqlite3_close_v2(c.tls, c.db); code != sqlite3.SQLITE_OK {
		err = fmt.Errorf("close it: %d", code)
	}
	c.tls.Close()
	return err
}
