package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
)

// The mark is a counter of commits in the main file, outside of SQLite's transactions. SQLite treats a write-ahead log
// that was truncated, removed or renamed as shorter: the work in it is missing without an error. The mark is written
// after each commit, before its callers get a response, so it never counts a commit that the log does not have. It is
// not synced: it is exact after the process was killed; after a power failure it may be too low, but never too high,
// since the log was synced before.
//
// The mark is in the 20 bytes of the header that SQLite reserves and ignores. A checkpoint writes page 1 from SQLite's
// cache, which may restore an older mark; the checkpointer writes the newest mark again after each checkpoint. The mark
// is bound to the inode: a copy of the file starts a new count.

const (
	markAt    = 72
	markSize  = 20
	markMagic = 0x534a // "SJ"
	// minFileSize is the minimum size of a file with a header: one page of the smallest size.
	minFileSize = 512
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mark records that an app committed a batch.
type mark struct {
	open  bool   // a store has, or had, the file open
	app   uint32 // hash of the app's id
	batch uint64 // number of the app's last batch
}

func appHash(app string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app))
	return h.Sum32()
}

func (m mark) encode(inode uint64) (b [markSize]byte) {
	binary.BigEndian.PutUint16(b[0:], markMagic)
	if m.open {
		b[2] = 1
	}
	binary.BigEndian.PutUint32(b[4:], m.app)
	binary.BigEndian.PutUint64(b[8:], m.batch)
	binary.BigEndian.PutUint32(b[16:], sum(b[:16], inode))
	return b
}

func sum(b []byte, inode uint64) uint32 {
	return crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, binary.BigEndian.AppendUint64(nil, inode))
}

// decodeMark returns the zero mark for bytes that are not a mark, or that are a mark of another file.
func decodeMark(b [markSize]byte, inode uint64) (m mark) {
	if binary.BigEndian.Uint16(b[0:]) != markMagic || binary.BigEndian.Uint32(b[16:]) != sum(b[:16], inode) {
		return m
	}
	return mark{open: b[2] == 1, app: binary.BigEndian.Uint32(b[4:]), batch: binary.BigEndian.Uint64(b[8:])}
}

// read reads the mark, and how the last app ended.
func (d *file) read() error {
	var err error
	if d.inode, err = inodeOf(d.f); err != nil {
		return err
	}
	var b [markSize]byte
	if n, _ := d.f.ReadAt(b[:], markAt); n == markSize {
		d.mark = decodeMark(b, d.inode)
	}
	if log, err := os.Stat(d.path + "-wal"); err == nil {
		d.wal = log.Size()
	}
	return nil
}

// unclean reports that the previous app did not close the file: SQLite removes the log when it closes the file.
func (d *file) unclean() bool { return d.mark.open || d.wal > 0 }

// markOpen marks a file that has a header as open.
func (d *file) markOpen(app string, batch int64) error {
	info, err := d.f.Stat()
	if err != nil || info.Size() < minFileSize {
		return err
	}
	d.marking.Lock()
	defer d.marking.Unlock()
	d.mark = mark{open: true, app: appHash(app), batch: uint64(batch)}
	return d.writeMark()
}

// committed counts a batch. If the disk fails, the next commit returns the error; until then the mark is too low.
func (d *file) committed(batch int64) {
	d.marking.Lock()
	defer d.marking.Unlock()
	if !d.mark.open {
		return
	}
	d.mark.batch = uint64(batch)
	_ = d.writeMark()
}

// checkpointed writes the mark again after a checkpoint.
func (d *file) checkpointed() {
	d.marking.Lock()
	defer d.marking.Unlock()
	if d.mark.open {
		_ = d.writeMark() // an error is a disk error; the next commit reports it
	}
}

// markClosed marks the file as closed. The file then contains everything that was in the log.
func (d *file) markClosed() error {
	d.marking.Lock()
	defer d.marking.Unlock()
	if !d.mark.open {
		return nil
	}
	d.mark.open = false
	return d.writeMark()
}

func (d *file) writeMark() error {
	b := d.mark.encode(d.inode)
	if _, err := d.f.WriteAt(b[:], markAt); err != nil {
		return fmt.Errorf("write the commit counter: %w", err)
	}
	return nil
}
