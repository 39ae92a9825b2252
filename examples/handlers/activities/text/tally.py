"""The activity text.tally: counts the words of all texts it has seen in this session."""

from collections import Counter


def main(batch, ctx):
    counts = ctx.session.get_or_create("counts", Counter)
    counts.update(word for word in batch["words"] if len(word) > 3)
    ctx.log.info("text", batch["text"], "has", len(batch["words"]), "words")
    return {"texts": batch["text"], "words": counts.total(), "most": dict(counts.most_common(2))}
